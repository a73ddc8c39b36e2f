//! HTTP requests to a collector.

use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

/// Maximum size in bytes of a response.
const MAX_RESPONSE: u64 = 4 << 20;

/// Sends requests. It blocks: exporters have threads of their own.
#[derive(Clone, Debug)]
pub(crate) struct Client(ureq::Agent);

impl Client {
    pub(crate) fn new(timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
        Self(config.build().into())
    }

    pub(crate) fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let (parts, mut body) = self.0.run(Request::from_parts(parts, &body[..]))?.into_parts();
        let bytes = body.with_config().limit(MAX_RESPONSE).read_to_vec()?;
        Ok(Response::from_parts(parts, bytes.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(self.send(request)?)
    }
}
