//! A TCP proxy with switchable network faults.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch::{self, Receiver, Sender};

use super::wait_until;

/// A fault of open and new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Pass,
    /// Each piece of data is delayed, in both directions.
    Delay(Duration),
    /// Requests and the first bytes of replies pass, per connection since the switch; then it is reset.
    CutReply {
        /// Bytes of replies that pass.
        after: usize,
    },
    /// Everything passes until a request contains these bytes in one piece; later replies are replaced by resets.
    CutReplyTo(&'static [u8]),
    /// Connections are accepted, but no data arrives; those that lost data are reset at the next switch.
    BlackHole,
    /// Open connections are reset at once, new ones when they are accepted.
    Reset,
    /// Open connections are reset, new ones are refused.
    Refuse,
}

/// A running proxy, initially without a fault. Dropping it closes all its connections.
pub struct Proxy {
    port: u16,
    order: Option<Sender<Order>>,
    /// Last order that new connections obey.
    obeyed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct Order {
    number: u64,
    fault: Fault,
    /// True once the request of [`Fault::CutReplyTo`] has come.
    was_asked: Arc<AtomicBool>,
}

impl Order {
    fn new(number: u64, fault: Fault) -> Self {
        Self { number, fault, was_asked: Arc::new(AtomicBool::new(false)) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Closed,
    Reset,
}

const PIECE: usize = 64 << 10;

impl Proxy {
    pub fn start(target: u16) -> Proxy {
        let order = Order::new(0, Fault::Pass);
        let (sender, receiver) = watch::channel(order);
        let socket = bound(0).expect("a loopback port can be had");
        let port = socket.local_addr().expect("a socket has an address").port();
        drop(socket);
        let obeyed = Arc::new(AtomicU64::new(u64::MAX));
        let of_thread = obeyed.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a tokio runtime can be built").block_on(accept(port, target, receiver, &of_thread));
        });
        let proxy = Proxy { port, order: Some(sender), obeyed, thread: Some(thread) };
        proxy.await_obedience(0);
        proxy
    }

    /// Returns its own port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Switches the fault: for new connections before it returns, for open ones shortly after.
    pub fn set(&self, fault: Fault) {
        let order = self.order.as_ref().expect("it runs until it is dropped");
        let number = order.borrow().number + 1;
        order.send_replace(Order::new(number, fault));
        self.await_obedience(number);
    }

    fn await_obedience(&self, number: u64) {
        wait_until("the proxy obeys", || self.obeyed.load(Ordering::SeqCst) == number);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.order.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been shown, and this one may be panicking, too.
            let _ = thread.join();
        }
    }
}

/// Returns a socket that holds the port without listening, so connections are refused.
fn bound(port: u16) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

/// Accepts connections until the proxy is dropped; they end with its runtime.
async fn accept(port: u16, target: u16, mut orders: Receiver<Order>, obeyed: &AtomicU64) {
    let listen = || bound(port).and_then(|socket| socket.listen(1024)).expect("the proxy's port can be had again");
    let mut listener: Option<TcpListener> = None;
    loop {
        let order = orders.borrow_and_update().clone();
        // Held while nobody listens.
        let mut _reserved = None;
        if order.fault == Fault::Refuse {
            drop(listener.take());
            _reserved = Some(bound(port).expect("the proxy's port can be had again"));
        }
        let listening = if order.fault == Fault::Refuse { None } else { Some(listener.get_or_insert_with(listen)) };
        obeyed.store(order.number, Ordering::SeqCst);
        loop {
            let accepted = async {
                match &listening {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = orders.changed() => match changed {
                    Ok(()) => break,
                    Err(_dropped) => return,
                },
                Ok((client, _)) = accepted => drop(tokio::spawn(connection(client, target, orders.clone()))),
            }
        }
    }
}

async fn connection(client: TcpStream, target: u16, orders: Receiver<Order>) {
    let fault = orders.borrow().fault;
    if matches!(fault, Fault::Reset | Fault::Refuse) {
        return reset(&client);
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return reset(&client) };
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let end = tokio::select! {
        end = pump(&client, &server, Direction::Request, orders.clone()) => end,
        end = pump(&server, &client, Direction::Reply, orders.clone()) => end,
    };
    if end == EndReason::Reset {
        reset(&client);
        reset(&server);
    }
}

/// Drops unsent data and closes the connection with RST.
fn reset(stream: &TcpStream) {
    // The stream may be closed already.
    let _ = stream.set_zero_linger();
}

/// Copies bytes one way until a side closes or the fault ends it.
async fn pump(from: &TcpStream, to: &TcpStream, direction: Direction, mut orders: Receiver<Order>) -> EndReason {
    let mut buffer = vec![0; PIECE];
    let Order { mut fault, mut was_asked, .. } = orders.borrow_and_update().clone();
    let mut swallowed = false;
    let mut replied = 0;
    loop {
        tokio::select! {
            changed = orders.changed() => {
                if changed.is_err() {
                    return EndReason::Reset;
                }
                Order { fault, was_asked, .. } = orders.borrow_and_update().clone();
                replied = 0;
                if swallowed || matches!(fault, Fault::Reset | Fault::Refuse) {
                    return EndReason::Reset;
                }
                continue;
            }
            ready = from.readable() => if ready.is_err() {
                return EndReason::Reset;
            }
        }
        let piece = match from.try_read(&mut buffer) {
            Ok(0) => return EndReason::Closed,
            Ok(length) => &buffer[..length],
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return EndReason::Reset,
        };
        // A piece on its way meets the fault that holds on its arrival.
        let whole = match fault {
            Fault::Pass => piece,
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                piece
            }
            Fault::CutReply { after } if direction == Direction::Reply => &piece[..piece.len().min(after - replied)],
            Fault::CutReply { .. } => piece,
            Fault::CutReplyTo(_) if direction == Direction::Reply && was_asked.load(Ordering::SeqCst) => {
                return EndReason::Reset;
            }
            Fault::CutReplyTo(request) => {
                // Set before sending, so that no reply overtakes it.
                if direction == Direction::Request && piece.windows(request.len()).any(|window| window == request) {
                    was_asked.store(true, Ordering::SeqCst);
                }
                piece
            }
            Fault::BlackHole => {
                swallowed = true;
                continue;
            }
            Fault::Reset | Fault::Refuse => return EndReason::Reset,
        };
        let length = whole.len();
        let cut = whole.len() < piece.len();
        if send(whole, to).await.is_err() {
            return EndReason::Reset;
        }
        replied += length;
        if cut || matches!(fault, Fault::CutReply { after } if direction == Direction::Reply && replied >= after) {
            return EndReason::Reset;
        }
    }
}

async fn send(mut bytes: &[u8], to: &TcpStream) -> std::io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
