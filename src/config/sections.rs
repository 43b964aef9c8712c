//! The macro that generates the settings types and the list of keys from the descriptions in `keys.rs`.

/// The description of a key.
#[derive(Debug)]
pub struct Key {
    /// The name with its section, such as `server.listen`.
    pub name: &'static str,
    /// Lines of the description, each with a leading space.
    pub doc: &'static [&'static str],
    /// The default as TOML.
    pub default: &'static str,
    /// A description of accepted values, with their bounds.
    pub expected: String,
    /// True if only tests can set it.
    pub is_constant: bool,
}

macro_rules! sections {
    ($(
        #[doc = $about:literal]
        $section:ident: $section_type:ident {
            $( $(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:literal, $kind:expr $(, $constant:ident)?; )*
        }
    )*) => {
        /// All settings, validated, one field per section of the file. Sizes are in bytes.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $( #[doc = $about] pub $section: $section_type, )*
            /// `[[meta.copy]]`: metadata that is copied into pages and days.
            pub copies: Vec<CopySettings>,
            /// `meta.text`: metadata that the text index covers.
            pub text: Vec<String>,
            /// `[[kinds]]`: schemas of readings and metadata.
            pub kinds: Kinds,
            /// `[[groups]]`: groups of sensors.
            pub groups: Vec<GroupSettings>,
            /// `[[mqtt]]`: brokers whose messages are stored.
            pub mqtt: Vec<MqttSettings>,
        }

        impl Settings {
            /// Sets the lists to those of a file with this text.
            ///
            /// # Errors
            /// If an entry is invalid.
            pub fn declare(&mut self, text: &str) -> Result<(), String> {
                let Lists { copies, text, kinds, groups, mqtt } = lists::read(text).map_err(|error| error.message)?;
                (self.copies, self.text, self.kinds, self.groups) = (copies, text, kinds, groups);
                self.mqtt = mqtt;
                Ok(())
            }
        }

        $(
            #[doc = $about]
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $section_type {
                $( $(#[doc = $doc])+ pub $key: $type, )*
            }
        )*

        /// Returns the descriptions of all keys and constants, in the order of this file.
        pub fn keys() -> Vec<Key> {
            vec![$(
                $( Key {
                    name: concat!(stringify!($section), ".", stringify!($key)),
                    doc: &[$($doc),+],
                    default: stringify!($default),
                    expected: $kind.expected,
                    is_constant: false $(|| stringify!($constant) == "constant")?,
                }, )*
            )*]
        }

        /// Reads every key. A size or count that is "auto" is [`AUTO`](super::value::AUTO) until the memory is divided.
        pub(super) fn read(reader: &mut KeyReader<'_>, lists: &Lists) -> Settings {
            Settings {
                $( $section: $section_type {
                    $( $key: reader.read(concat!(stringify!($section), ".", stringify!($key)), &$kind), )*
                }, )*
                copies: lists.copies.clone(),
                text: lists.text.clone(),
                kinds: lists.kinds.clone(),
                groups: lists.groups.clone(),
                mqtt: lists.mqtt.clone(),
            }
        }
    };
}
