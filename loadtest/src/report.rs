//! What a run found: the figures as data, as text for a terminal, and as a page with plots.

pub mod html;
pub mod machine;
pub mod results;
mod style;
pub mod svg;
pub mod text;
