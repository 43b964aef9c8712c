//! Terminal colours.

/// Colours texts, unless it is off.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    pub is_on: bool,
}

impl Paint {
    /// Turns colours on for a terminal, unless the environment has a non-empty `NO_COLOR` (<https://no-color.org>) or
    /// `TERM=dumb`.
    pub fn new(is_terminal: bool) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { is_on: is_terminal && !is_plain }
    }

    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Underlines and colours a link.
    pub fn link(self, text: &str) -> String {
        self.with("4;36", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
