//! Wraps the service for one connection: reports request progress to the connection state, refuses ambiguous request
//! heads, and adds common and connection-specific headers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, Version, header};
use hyper::body::{Frame, Incoming, SizeHint};

use super::{common_headers, head};
use crate::edge::{ConnectionState, EndlessAnswer, Peer, SendingAnswer};
use crate::http::HttpService;
use crate::http::errors::{ApiError, Dialect};
use crate::http::render::text::{Endless, Length};

/// The service of one connection. Cheap to clone.
#[derive(Clone)]
pub struct ConnectionService(Arc<Shared>);

struct Shared {
    service: HttpService,
    peer: Arc<Peer>,
    state: Arc<ConnectionState>,
    /// The header `Strict-Transport-Security`.
    hsts: Option<HeaderValue>,
}

/// The connection was closed before its request began, to make room or because of a deadline.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed before the request began")]
pub struct AbandonedConnection;

impl ConnectionService {
    pub fn new(service: HttpService, peer: Arc<Peer>, state: Arc<ConnectionState>, hsts: Option<HeaderValue>) -> Self {
        Self(Arc::new(Shared { service, peer, state, hsts }))
    }
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<AnswerBody>;
    type Error = AbandonedConnection;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, AbandonedConnection>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = self.0.clone();
        let multiplexed = request.version() == Version::HTTP_2;
        if multiplexed {
            shared.state.set_multiplexed();
        }
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let has_begun = shared.state.begin_request(has_body);
        let ending = multiplexed.then(|| RequestEnd(shared.clone()));
        Box::pin(async move {
            if !has_begun {
                return Err(AbandonedConnection);
            }
            let mut response = shared.answer(request, has_body).await;
            common_headers::add(response.headers_mut());
            shared.state.record_answer();
            let length = response.extensions().get::<Length>().map_or(0, |length| length.0);
            let is_endless = response.extensions().get::<Endless>().is_some();
            let endless = is_endless.then(|| shared.state.start_endless_answer());
            let sending = if is_endless { None } else { shared.state.start_sending(length) };
            Ok(response.map(|body| AnswerBody { body, ending, sending, _endless: endless }))
        })
    }
}

impl Shared {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>, has_body: bool) -> Response<Body> {
        if let Some((status, reason)) = head::find_fault(&request, &self.state) {
            tracing::debug!(reason, "request head refused");
            let mut response = ApiError::Bad(reason).respond(Dialect::Native);
            *response.status_mut() = status;
            // The start of the next request is unknown, so close the connection.
            if request.version() != Version::HTTP_2 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
        let watched =
            |body| if has_body { Body::new(RequestBody { body, shared: self.clone() }) } else { Body::empty() };
        let mut response = self.service.answer(request.map(watched), &self.peer).await;
        if let Some(hsts) = &self.hsts {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        response
    }
}

/// A request body that reports when it is complete or dropped.
struct RequestBody {
    body: Incoming,
    shared: Arc<Shared>,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if polled.is_ready() && this.body.is_end_stream() {
            this.shared.state.record_body_end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.shared.state.record_body_end();
    }
}

/// An answer body that reports its progress, and on a multiplexed connection its end.
pub struct AnswerBody {
    body: Body,
    ending: Option<RequestEnd>,
    sending: Option<SendingAnswer>,
    _endless: Option<EndlessAnswer>,
}

/// Reports the end of a request when it is dropped.
struct RequestEnd(Arc<Shared>);

impl Drop for RequestEnd {
    fn drop(&mut self) {
        self.0.state.end_request();
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(ending) = &this.ending {
            ending.0.state.record_progress();
        }
        if let Some(sending) = &mut this.sending {
            sending.record_progress();
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
