//! Who may send requests, beyond tokens: pages by their origin, and names by which the service is asked.

use super::cors::Cors;
use super::hosts::Hosts;

/// Shared by the listeners of one process.
#[derive(Debug, Default)]
pub struct Senders {
    pub cors: Cors,
    pub hosts: Hosts,
}
