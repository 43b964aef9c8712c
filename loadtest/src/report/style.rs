//! Style.
