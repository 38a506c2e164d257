//! A look at a provider from outside: whether its name resolves, how long its certificate holds, how
//! quickly it answers, and whether it takes a key. Nothing is generated, so nothing is billed.

use std::time::Duration;

use forebay_engine::Clock;
use forebay_engine::clock::TokioClock;
use reqwest::tls::TlsInfo;
use reqwest::{Client, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::call::innermost;
use super::guard::{self, GuardedResolver};
use super::protocol::Protocol;
use crate::catalog::Provider;

/// How long a provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A certificate that ends sooner is worth a word.
const CERTIFICATE_SOON: Duration = Duration::from_secs(14 * 86_400);

/// Looks at a provider; `Err` says what is wrong.
#[derive(Debug)]
pub struct Inspector {
    client: Client,
    models: Url,
}

impl Inspector {
    /// For `provider`.
    ///
    /// # Errors
    /// When its address may not be called at all.
    pub fn new(provider: &Provider) -> Result<Self, String> {
        let base = Protocol::of(provider).base(&provider.base_url);
        let models: Url = format!("{base}/models").parse().map_err(|error| format!("base_url: {error}"))?;
        let allow_private = provider.allow_private_network;
        guard::check_url(&models, allow_private).map_err(|refusal| refusal.to_string())?;
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .tls_info(true)
            .no_proxy()
            .dns_resolver(std::sync::Arc::new(GuardedResolver { allow_private }));
        if let Some(proxy) = &provider.proxy_url {
            client = client.proxy(reqwest::Proxy::all(&**proxy).map_err(|error| error.to_string())?);
        }
        Ok(Self { client: client.build().map_err(|error| error.to_string())?, models })
    }

    /// The addresses that its name stands for.
    ///
    /// # Errors
    /// When there are none.
    pub async fn name(&self) -> Result<String, String> {
        let host = self.models.host_str().unwrap_or_default();
        let port = self.models.port_or_known_default().unwrap_or(443);
        let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
        let found = found.map_err(|error| format!("{host} does not resolve: {error}"))?;
        let addresses: Vec<String> = found.map(|address| address.ip().to_string()).collect();
        if addresses.is_empty() { Err(format!("{host} has no address")) } else { Ok(addresses.join(", ")) }
    }

    /// How quickly it answers, and how long its certificate holds.
    ///
    /// # Errors
    /// When it does not answer, or its certificate ends within two weeks.
    pub async fn connection(&self) -> Result<String, String> {
        let began = tokio::time::Instant::now();
        let response = self.ask(None).await?;
        let took = began.elapsed().as_millis();
        let Some(ends) = certificate_end(&response) else { return Ok(format!("answers in {took} ms")) };
        let now = Duration::from_micros(TokioClock::new().now().as_micros());
        let left = ends.saturating_sub(now);
        let days = left.as_secs() / 86_400;
        if left < CERTIFICATE_SOON {
            return Err(format!("answers in {took} ms, but its certificate ends in {days} days"));
        }
        Ok(format!("answers in {took} ms, certificate good for {days} days"))
    }

    /// Whether a key is taken.
    ///
    /// # Errors
    /// When it is refused, or nobody can tell.
    pub async fn key(&self, key: &SecretString) -> Result<String, String> {
        match self.ask(Some(key)).await?.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err("its key is refused".into()),
            status if status.is_success() => Ok("its key is accepted".into()),
            status => Ok(format!("can't be told without a call that costs: GET /models says {status}")),
        }
    }

    async fn ask(&self, key: Option<&SecretString>) -> Result<Response, String> {
        let mut request = self.client.get(self.models.clone());
        if let Some(key) = key {
            request = request.bearer_auth(key.expose_secret());
        }
        request.send().await.map_err(|error| format!("does not answer: {}", innermost(&error)))
    }
}

/// When the certificate that a response came over ends, since the Unix epoch.
fn certificate_end(response: &Response) -> Option<Duration> {
    let certificate = response.extensions().get::<TlsInfo>()?.peer_certificate()?;
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration())
}
