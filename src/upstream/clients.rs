//! HTTP clients: one a provider, so that its guard, its proxy and its idle connections are its own.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use forebay_engine::{Class, Failure};
use reqwest::{Client, redirect};

use super::guard::GuardedResolver;
use crate::catalog::{Provider, Settings};

/// What a client is built from; another value is another client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    provider: String,
    allow_private: bool,
    proxy: Option<String>,
    connect_timeout: Duration,
    idle_per_host: usize,
}

/// The clients in use.
#[derive(Debug, Default)]
pub(super) struct Clients(RwLock<HashMap<String, (Shape, Client)>>);

/// The name of the client that is no provider's; no provider's key is empty.
const STRANGER: &str = "";

impl Clients {
    /// The client of `provider`, made anew when what it is built from has changed.
    pub(super) fn of(&self, provider: &Provider, settings: &Settings) -> Result<Client, Failure> {
        self.get(&provider.key, provider.allow_private_network, provider.proxy_url.as_deref(), settings)
    }

    /// The client for addresses that are no provider's own: it reaches public ones only.
    pub(super) fn stranger(&self, settings: &Settings) -> Result<Client, Failure> {
        self.get(STRANGER, false, None, settings)
    }

    fn get(
        &self,
        name: &str,
        allow_private: bool,
        proxy: Option<&str>,
        settings: &Settings,
    ) -> Result<Client, Failure> {
        let fits = |shape: &Shape| {
            shape.allow_private == allow_private
                && shape.proxy.as_deref() == proxy
                && shape.connect_timeout == settings.connect_timeout
                && shape.idle_per_host == settings.pool_idle_per_host
        };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((shape, client)) = known.get(name)
            && fits(shape)
        {
            return Ok(client.clone());
        }
        drop(known);
        let shape = Shape {
            provider: name.to_owned(),
            allow_private,
            proxy: proxy.map(str::to_owned),
            connect_timeout: settings.connect_timeout,
            idle_per_host: settings.pool_idle_per_host,
        };
        let client = build(&shape).map_err(|error| {
            Failure::new(Class::Misconfigured, format!("no client for this provider: {error}"))
        })?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(shape.provider.clone(), (shape, client.clone()));
        Ok(client)
    }
}

fn build(shape: &Shape) -> reqwest::Result<Client> {
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(shape.connect_timeout)
        .pool_max_idle_per_host(shape.idle_per_host)
        .pool_idle_timeout(Duration::from_secs(60))
        .tcp_nodelay(true)
        .dns_resolver(Arc::new(GuardedResolver { allow_private: shape.allow_private }))
        .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
        .no_proxy();
    match &shape.proxy {
        Some(proxy) => client.proxy(reqwest::Proxy::all(proxy)?).build(),
        None => client.build(),
    }
}
