//! Who may do what, and how much: tokens with their scopes, what a request may do by the one it carries, quotas, and
//! the audit log. Judges no reading, reaches no network and knows no HTTP; where tokens are kept it declares as a
//! trait, which the store implements beside the file here.
//!
//! Rules and their sources: OWASP ASVS 5.0, 6.5.2 and 11.5.1 (secrets of 256 random bits, kept as SHA-256), 11.2.4
//! (compared in constant time), 8.3.2 (a revocation counts at once).

mod audit;
mod caller;
mod file;
mod quota;
mod registry;
mod scopes;
mod secret;
mod token;

pub use self::audit::{Audit, Event, cut};
pub use self::caller::{Caller, Denied, Holder};
pub use self::file::TokenFile;
pub use self::quota::{Allowance, Exhausted, Quota, Rate, Usage, parse_rate};
pub use self::registry::{Mode, Registry};
pub use self::scopes::{Pin, Scopes, is_glob, matches};
pub use self::secret::{Presented, Secret};
pub use self::token::{Token, TokenChange, TokenStore, TokenStoreError};
