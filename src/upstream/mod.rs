//! Upstreams over HTTP: the engine's [`Upstream`] port, one file a protocol.
//!
//! Nothing is ever sent twice from here: redirects, retries and the environment's proxies are off,
//! and a body can be read only once.

mod body;
mod clients;
pub mod guard;
mod openai;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use forebay_engine::upstream::{Order, Upstream, Whole};
use forebay_engine::{Class, Failure, ModelId};
use reqwest::Url;
use serde_json::{Map, Value};

use self::clients::Clients;
pub use self::openai::ChatStream;
use crate::catalog::{Catalog, ModelTarget};
use crate::exchange::Ask;

/// All upstreams.
#[derive(Debug)]
pub struct HttpUpstream {
    catalog: Arc<Catalog>,
    clients: Clients,
    endpoints: RwLock<HashMap<ModelId, (Weak<ModelTarget>, Url)>>,
}

impl HttpUpstream {
    /// Whoever the catalog knows.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, clients: Clients::default(), endpoints: RwLock::default() }
    }

    /// A model's endpoint, parsed and checked once for as long as the configuration keeps the model.
    fn endpoint(&self, model: &Arc<ModelTarget>) -> Result<Url, Failure> {
        let known = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, url)) = known.get(&model.id)
            && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, model))
        {
            return Ok(url.clone());
        }
        drop(known);
        let url = openai::endpoint(model)?;
        let mut known = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(model.id.clone(), (Arc::downgrade(model), url.clone()));
        Ok(url)
    }

    async fn send(
        &self,
        order: &Order<'_, Ask>,
        stream: bool,
    ) -> Result<(reqwest::Response, String), Failure> {
        let snapshot = self.catalog.snapshot();
        let gone = || Failure::new(Class::Misconfigured, "the model is not configured any more");
        let model = snapshot.models.get(&order.member.model).ok_or_else(gone)?;
        let key = match order.account {
            None => None,
            Some(account) => Some(snapshot.accounts.get(&account.id).ok_or_else(gone)?),
        };
        let client = self.clients.of(&model.provider, &snapshot.settings)?;
        let url = self.endpoint(model)?;
        openai::send(&client, url, model, key.map(|credential| &credential.key), order, stream).await
    }
}

impl Upstream for HttpUpstream {
    type Request = Ask;
    type Answer = Map<String, Value>;
    type Stream = ChatStream;

    async fn whole(&self, order: Order<'_, Ask>) -> Result<Whole<Self::Answer>, Failure> {
        let (response, secret) = self.send(&order, false).await?;
        openai::read_whole(response, order.request, &secret).await
    }

    async fn stream(&self, order: Order<'_, Ask>) -> Result<ChatStream, Failure> {
        let (response, secret) = self.send(&order, true).await?;
        openai::read_stream(response, secret).await
    }
}
