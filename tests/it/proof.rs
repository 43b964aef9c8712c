//! The proof that an ack is kept.

mod proxy;
