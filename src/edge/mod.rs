//! Connections, independent of their protocol: limits, deadlines, TLS, and streams that track their progress. `http`
//! and `tcp` report the requests in progress.

mod accept;
mod certificate;
mod connection_limits;
mod connection_state;
mod peer;
mod proxies;
mod request_lines;
mod stream;
mod tls;
mod tls_client;

pub use accept::{Connection, Listener, serve, wait_for_stop};
pub use connection_limits::{Bounds, ConnectionLimits};
pub use connection_state::{ConnectionState, EndlessAnswer, SendingAnswer};
pub use peer::{Peer, StaleCertificate};
pub use proxies::TrustedProxies;
pub use stream::Stream;
pub use tls::{Acceptor, Tls, TlsError};
pub use tls_client::{ClientFiles, ClientStream, channel_of, connect_tls};
