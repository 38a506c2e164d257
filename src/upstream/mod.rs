//! Upstreams over HTTP: the engine's [`Upstream`] port, one file a protocol.
//!
//! Nothing is ever sent twice from here: redirects, retries and the environment's proxies are off,
//! and a body can be read only once.

mod ark;
mod body;
mod call;
mod clients;
mod dashscope;
mod files;
pub mod guard;
pub mod inspect;
mod multipart;
mod ollama;
mod openai;
mod protocol;
mod stream;
mod trial;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use forebay_engine::upstream::{Order, Sent, Upstream, Whole};
use forebay_engine::{AccountId, Class, Failure, ModelId};
use forebay_wire::classify::classify_inside;
use reqwest::{Response, Url};
use serde_json::{Map, Value};

use self::call::{Secret, read_all, refusal};
use self::clients::Clients;
use self::protocol::{Protocol, Understood};
pub use self::stream::HttpStream;
use crate::catalog::{Catalog, ModelTarget, Snapshot};
use crate::exchange::{Ask, Fetched, ModelUpstream, Operation};

/// The largest whole answer, in bytes.
const ANSWER_CAP: usize = 64 * 1024 * 1024;

/// All upstreams.
#[derive(Debug)]
pub struct HttpUpstream {
    catalog: Arc<Catalog>,
    clients: Clients,
    endpoints: RwLock<Endpoints>,
}

/// Where each model is asked for each operation, for as long as the model is configured like that.
type Endpoints = HashMap<(ModelId, Operation), (Weak<ModelTarget>, Url)>;

/// A response, and what is needed to understand it.
struct Sending {
    response: Response,
    protocol: Protocol,
    secret: Secret,
}

impl HttpUpstream {
    /// Whoever the catalog knows.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, clients: Clients::default(), endpoints: RwLock::default() }
    }

    /// A model's endpoint, parsed and checked once for as long as the configuration keeps the model.
    fn endpoint(
        &self,
        protocol: Protocol,
        model: &Arc<ModelTarget>,
        operation: Operation,
    ) -> Result<Url, Failure> {
        let name = (model.id.clone(), operation);
        let known = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, url)) = known.get(&name)
            && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, model))
        {
            return Ok(url.clone());
        }
        drop(known);
        let url = protocol.endpoint(model, operation)?;
        let mut known = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(name, (Arc::downgrade(model), url.clone()));
        Ok(url)
    }

    async fn send(
        &self,
        model: &ModelId,
        account: Option<&AccountId>,
        ask: &Ask,
        stream: bool,
        sent: &Sent,
    ) -> Result<Sending, Failure> {
        let snapshot = self.catalog.snapshot();
        let model = known(&snapshot, model)?;
        let key = match account {
            None => None,
            Some(account) => Some(&snapshot.accounts.get(account).ok_or_else(gone)?.key),
        };
        let secret = Secret::new(key);
        let client = self.clients.of(&model.provider, &snapshot.settings)?;
        let protocol = Protocol::of(&model.provider);
        let url = self.endpoint(protocol, model, ask.operation)?;
        let call = if protocol.wants_files(ask) {
            let stranger = self.clients.stranger(&snapshot.settings)?;
            protocol.form(model, ask, &stranger).await?
        } else {
            protocol.call(model, ask, stream, &secret)?
        };
        let response = call::send(&client, url, call, &secret, sent).await?;
        Ok(Sending { response, protocol, secret })
    }
}

fn gone() -> Failure {
    Failure::new(Class::Misconfigured, "the model or its account is not configured any more")
}

fn known<'a>(snapshot: &'a Snapshot, model: &ModelId) -> Result<&'a Arc<ModelTarget>, Failure> {
    snapshot.models.get(model).ok_or_else(gone)
}

impl Upstream for HttpUpstream {
    type Request = Ask;
    type Answer = Map<String, Value>;
    type Stream = HttpStream;

    async fn whole(&self, order: Order<'_, Ask>) -> Result<Whole<Self::Answer>, Failure> {
        let account = order.account.map(|account| &account.id);
        let sending = self.send(&order.member.model, account, order.request, false, order.sent).await?;
        read_whole(sending, order.request).await
    }

    async fn stream(&self, order: Order<'_, Ask>) -> Result<HttpStream, Failure> {
        let account = order.account.map(|account| &account.id);
        let Sending { response, protocol, secret } =
            self.send(&order.member.model, account, order.request, true, order.sent).await?;
        stream::read(response, protocol, order.request.operation, secret).await
    }
}

/// Reads a whole answer, or finds out why there is none.
async fn read_whole(sending: Sending, ask: &Ask) -> Result<Whole<Map<String, Value>>, Failure> {
    let Sending { response, protocol, secret } = sending;
    if !response.status().is_success() {
        return Err(refusal(response, &secret).await);
    }
    let bytes = read_all(response, ANSWER_CAP).await.map_err(|cut| {
        let class = if matches!(ask.operation, Operation::Image | Operation::ImageEdit) {
            Class::Unknown
        } else {
            cut.class
        };
        secret.redacted(Failure { class, ..cut }.with_status(200))
    })?;
    let body = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(body)) => body,
        // An error may come in a list.
        Ok(other) if let Some(failure) = classify_inside(&other) => return Err(secret.redacted(failure)),
        _ => match transcript(ask, &bytes) {
            Some(body) => body,
            None => return Err(openai::unreadable(ask.operation)),
        },
    };
    let Understood { body, usage } =
        protocol.understand(ask, body).map_err(|failure| secret.redacted(failure))?;
    let provider_task_id = body.get("id").and_then(Value::as_str).map(str::to_owned);
    Ok(Whole { answer: body, usage, provider_task_id })
}

/// A transcript that was asked for as plain text or subtitles is no JSON.
fn transcript(ask: &Ask, bytes: &[u8]) -> Option<Map<String, Value>> {
    let format = ask.input.get("response_format").and_then(Value::as_str)?;
    if ask.operation != Operation::Transcription || !matches!(format, "text" | "srt" | "vtt") {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.trim_start().starts_with('<'))?;
    Some(Map::from_iter([("text".to_owned(), Value::from(text))]))
}

impl ModelUpstream for HttpUpstream {
    async fn fetch(&self, model: &ModelId, url: &str, cap: usize) -> Result<Fetched, Failure> {
        let snapshot = self.catalog.snapshot();
        let model = known(&snapshot, model)?;
        let (url, own) = files::result_url(model, url)?;
        let client = if own {
            self.clients.of(&model.provider, &snapshot.settings)?
        } else {
            self.clients.stranger(&snapshot.settings)?
        };
        files::fetch(&client, url, cap).await
    }
}
