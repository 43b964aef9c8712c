//! The results of a run: as data, as text for a terminal, and as an HTML page with plots.

pub mod html;
pub mod machine;
pub mod results;
mod style;
pub mod svg;
pub mod text;
