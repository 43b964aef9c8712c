//! Connections, heads and bodies under attack from the open internet.

mod bombs;
mod crowds;
mod slow;
mod smuggling;
mod tls;
mod web;
