//! Access control: tokens and their scopes, authentication of requests, quotas, and the audit trail. It does not depend
//! on HTTP. The trait [`TokenStore`] hides the place of tokens, which is a file here or a collection in MongoDB.
//!
//! Rules from OWASP ASVS 5.0: 6.5.2 and 11.5.1 (secrets of 256 random bits, stored as SHA-256), 11.2.4 (compared in
//! constant time), 8.3.2 (a revocation takes effect at once).

mod audit;
mod caller;
mod change;
mod effects;
mod file;
mod mongo;
mod quota;
mod registry;
mod scopes;
mod secret;
mod token;

pub use self::audit::{Audit, Event, OsUser, TrailReport, cut, is_control_or_invisible};
pub use self::caller::{Caller, Denied, Holder, LastUse};
pub use self::change::{ChangedToken, NewToken, RejectedChange, TokenChange};
pub use self::effects::{Effect, Forbidden};
pub use self::file::TokenFile;
pub use self::quota::{Allowance, Exhausted, Quota, Rate, Usage, parse_rate, share};
pub use self::registry::{Mode, TokenRegistry};
pub use self::scopes::{IngestScope, Pin, Scopes, is_glob};
pub use self::secret::{PresentedToken, Secret, hex};
pub use self::token::{Token, TokenStore, TokenStoreError};
