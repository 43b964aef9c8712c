//! Several instances in virtual time, with faults from a seed, and the promises that must hold whatever happens.
//!
//! `HOURGLASS_SIMULATION_SEEDS=100000` runs more seeds, and `HOURGLASS_SIMULATION_FIRST=17` begins elsewhere.

mod clients;
mod counts;
mod data;
mod faults;
mod node;
mod oracle;
mod process;
mod profile;
mod random;
mod run;
mod scenarios;
mod store;
mod world;
