//! The `named!` macro.

/// Implements `name` and `from_name` for an enum without fields. The names appear in the API and in stored documents.
#[macro_export]
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal),+) => {
        impl $type {
            /// The name in the API, in messages and in the store.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The variant with this name; `None` if there is no such variant.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
