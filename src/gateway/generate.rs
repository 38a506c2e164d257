//! POST /api/generate, and every endpoint of /v1 that generates.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, post};

use super::error::{ApiError, DUPLICATE_KEY, Dialect};
use super::keys::{Entry, KeyGuard};
use super::request::{self, Asked};
use super::run::Begin;
use super::{CallerSlot, Gateway, stream};
use crate::catalog::{Caller, Snapshot};
use crate::exchange::{ModelUpstream, Operation};

/// Where requests come in, and what each of them asks for.
pub(super) const ENDPOINTS: [(&str, Operation); 10] = [
    ("/v1/chat/completions", Operation::Chat),
    ("/v1/completions", Operation::Completion),
    ("/v1/responses", Operation::Responses),
    ("/v1/embeddings", Operation::Embedding),
    ("/v1/images/generations", Operation::Image),
    ("/v1/images/edits", Operation::ImageEdit),
    ("/v1/audio/speech", Operation::Speech),
    ("/v1/audio/transcriptions", Operation::Transcription),
    ("/v1/moderations", Operation::Moderation),
    ("/v1/rerank", Operation::Rerank),
];

/// An endpoint that generates.
#[derive(Clone, Copy)]
enum Endpoint {
    Generate,
    OpenAi(&'static str, Operation),
}

impl Endpoint {
    const fn dialect(self) -> Dialect {
        match self {
            Self::Generate => Dialect::Forebay,
            Self::OpenAi(..) => Dialect::OpenAi,
        }
    }

    async fn read(
        self,
        headers: &HeaderMap,
        body: Body,
        snapshot: &Snapshot,
        caller: &Caller,
    ) -> Result<Asked, ApiError> {
        let body = request::read_body(headers, body, snapshot.settings.body_limit).await?;
        match self {
            Self::Generate => request::read_generate(body, headers, snapshot, caller),
            Self::OpenAi(path, operation) => {
                request::read_openai(path, operation, body, headers, snapshot, caller)
            }
        }
    }
}

/// The routes of all of them.
pub(super) fn routes<U: ModelUpstream>() -> impl Iterator<Item = (&'static str, MethodRouter<Gateway<U>>)> {
    let openai = ENDPOINTS.into_iter().map(|(path, operation)| (path, Endpoint::OpenAi(path, operation)));
    std::iter::once(("/api/generate", Endpoint::Generate)).chain(openai).map(|(path, endpoint)| {
        let handler = move |State(gateway): State<Gateway<U>>, request: Request| async move {
            let served = gateway.serve(request, endpoint).await;
            served.unwrap_or_else(|error| error.response(endpoint.dialect()))
        };
        (path, post(handler))
    })
}

impl<U: ModelUpstream> Gateway<U> {
    async fn serve(&self, request: Request, endpoint: Endpoint) -> Result<Response, ApiError> {
        if self.is_draining() {
            return Err(ApiError::shutting_down());
        }
        let (head, body) = request.into_parts();
        let (caller, snapshot) = self.caller(&head.headers)?;
        let asked = endpoint.read(&head.headers, body, &snapshot, &caller).await?;
        drop(snapshot);
        let Some((key, hash)) = asked.idempotency.clone() else {
            return self.serve_once(caller, asked, None).await.map_err(|error| (*error).clone());
        };
        loop {
            let guard = match self.keys.enter(&self.ledger, &caller.id, &key, &hash).await? {
                Entry::Mine(guard) => guard,
                Entry::Finished(Ok(answer)) if asked.stream => {
                    return Ok(stream::replay(&answer, asked.dialect, asked.include_usage));
                }
                Entry::Finished(Ok(answer)) => {
                    return Ok(answer.response(asked.shape(), &self.results).await);
                }
                Entry::Finished(Err(error)) => return Err((*error).clone()),
            };
            match self.serve_once(caller.clone(), asked.clone(), Some(guard)).await {
                Ok(response) => return Ok(response),
                // Another node was first with this key: its answer is the answer.
                Err(error) if error.code == DUPLICATE_KEY => {}
                Err(error) => return Err((*error).clone()),
            }
        }
    }

    async fn serve_once(
        &self,
        caller: Arc<Caller>,
        asked: Asked,
        key: Option<KeyGuard>,
    ) -> Result<Response, Arc<ApiError>> {
        let slot = CallerSlot::take(&caller)?;
        let file = asked.operation.answers_a_file() && asked.dialect == Dialect::OpenAi;
        if asked.stream || file {
            let begin = Begin { caller, slot, key, asked };
            return self.streamed(begin).await.map(stream::StreamStart::response);
        }
        let shape = asked.shape();
        let answer = self.whole(Begin { caller, slot, key, asked }).await?;
        Ok(answer.response(shape, &self.results).await)
    }
}
