//! What a connection calls with every request, around the service: the watch is told how far the request is, heads
//! that two readers could read differently are refused, and what goes onto every answer of the connection is added.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, Version, header};
use hyper::body::{Frame, Incoming, SizeHint};

use super::Service;
use super::errors::{ApiError, Dialect};
use super::head;
use super::server::Protocol;
use super::text::Length;
use crate::edge::{Sending, Watch};

/// One connection's side of the service. Cheap to clone.
#[derive(Clone)]
pub struct Connected(Arc<Shared>);

struct Shared {
    service: Service,
    watch: Arc<Watch>,
    secure: bool,
    protocol: Arc<Protocol>,
}

/// The connection was given up before its request began.
#[derive(Debug, thiserror::Error)]
#[error("the connection was given up before the request began")]
pub struct GivenUp;

impl Connected {
    pub fn new(service: Service, watch: Arc<Watch>, secure: bool, protocol: Arc<Protocol>) -> Self {
        Self(Arc::new(Shared { service, watch, secure, protocol }))
    }
}

impl hyper::service::Service<Request<Incoming>> for Connected {
    type Response = Response<Answer>;
    type Error = GivenUp;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, GivenUp>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = self.0.clone();
        let multiplexed = request.version() == Version::HTTP_2;
        if multiplexed {
            shared.watch.multiplex();
        }
        let has_body = !hyper::body::Body::is_end_stream(request.body());
        let begun = shared.watch.begin(has_body);
        let ending = multiplexed.then(|| Ending(shared.clone()));
        Box::pin(async move {
            if !begun {
                return Err(GivenUp);
            }
            let response = shared.answer(request, has_body).await;
            shared.watch.answered();
            let length = response.extensions().get::<Length>().map_or(0, |length| length.0);
            let sending = shared.watch.sends(length);
            Ok(response.map(|body| Answer { body, ending, sending }))
        })
    }
}

impl Shared {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>, has_body: bool) -> Response<Body> {
        if let Some(unsound) = head::unsound(&request, &self.watch) {
            tracing::debug!(reason = %unsound, "a request's head was refused");
            let mut response = ApiError::Bad(unsound.to_string()).respond(Dialect::V1);
            *response.status_mut() = unsound.status();
            // Nobody knows where the next request would begin.
            if request.version() != Version::HTTP_2 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
        let mut response = match has_body {
            true => {
                let body = |body| Body::new(Moving { body, shared: self.clone() });
                self.service.answer(request.map(body)).await
            }
            false => self.service.answer(request.map(|_| Body::empty())).await,
        };
        if let Some(hsts) = self.protocol.hsts.as_ref().filter(|_| self.secure) {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        response
    }
}

/// A request's body, which says when all of it is there or nobody wants the rest.
struct Moving {
    body: Incoming,
    shared: Arc<Shared>,
}

impl http_body::Body for Moving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if polled.is_ready() && this.body.is_end_stream() {
            this.shared.watch.body_is_in();
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

impl Drop for Moving {
    fn drop(&mut self) {
        self.shared.watch.body_is_in();
    }
}

/// An answer's body. Where several requests may be under way, it says when it has left.
pub struct Answer {
    body: Body,
    ending: Option<Ending>,
    sending: Option<Sending>,
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.watch.ended();
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(ending) = &this.ending {
            ending.0.watch.moved();
        }
        if let Some(sending) = &mut this.sending {
            sending.moved();
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
