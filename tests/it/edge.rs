//! Safe towards the open internet: what a stranger can do to connections, heads and bodies, and cannot.

mod bombs;
mod crowds;
mod slow;
mod smuggling;
mod tls;
mod web;
