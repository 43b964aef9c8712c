//! Connections before anybody knows what is spoken on them: who may have one and for how long, TLS, and streams
//! that tell how they are getting on. Knows no HTTP and nothing of readings; `http` and `tcp` say what is under way.

mod accept;
mod certificate;
mod io;
mod peer;
mod seats;
mod stamp;
mod stream;
mod tls;
mod watch;

pub use accept::{Connection, Listener, serve, stopped};
pub use peer::Peer;
pub use seats::{Bounds, Seats};
pub use stream::Stream;
pub use tls::{Acceptor, ClientAuth, Files, Tls, TlsError};
pub use watch::{Sending, Watch};
