//! Access control: tokens with their scopes, authentication of requests, quotas, and the audit trail. Validates no
//! readings, uses no network and knows no HTTP. Tokens are stored behind the trait [`TokenStore`], which the file here
//! and the MongoDB store implement.
//!
//! Rules from OWASP ASVS 5.0: 6.5.2 and 11.5.1 (secrets of 256 random bits, stored as SHA-256), 11.2.4 (compared in
//! constant time), 8.3.2 (a revocation takes effect at once).

mod audit;
mod caller;
mod change;
mod file;
mod mongo;
mod quota;
mod registry;
mod scopes;
mod secret;
mod token;

pub use self::audit::{Audit, Event, OsUser, TrailReport, cut, steers};
pub use self::caller::{Caller, Denied, Holder, Uses};
pub use self::change::{ChangedToken, NewToken, RejectedChange, TokenChange};
pub use self::file::{TokenFile, replace_file};
pub use self::quota::{Allowance, Exhausted, Quota, Rate, Usage, parse_rate};
pub use self::registry::{Mode, TokenRegistry};
pub use self::scopes::{Pin, Scopes, is_glob, matches};
pub use self::secret::{Presented, Secret, hex};
pub use self::token::{Token, TokenStore, TokenStoreError};
