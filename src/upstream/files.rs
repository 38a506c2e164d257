//! Files that a request carries or an upstream hands out, fetched under the guard.

use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{Class, Failure};
use reqwest::{Client, Url};

use super::call::{innermost, read_all};
use super::guard::{self, Refusal};
use crate::catalog::ModelTarget;
use crate::exchange::{Fetched, FilePart, FileSource};

/// The largest file that is fetched for a caller, in bytes.
const INPUT_CAP: usize = 50 * 1024 * 1024;
/// How long one fetch may take.
const FETCH_TIME: Duration = Duration::from_secs(60);

/// A file whose content is here.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) file_name: String,
    pub(super) content_type: String,
    pub(super) bytes: Bytes,
}

/// A request's files with their contents: those at an address are fetched first. What can't be had is
/// the caller's mistake.
pub(super) async fn collect(stranger: &Client, parts: &[FilePart]) -> Result<Vec<File>, Failure> {
    let mut files = Vec::with_capacity(parts.len());
    for part in parts {
        let file = match &part.source {
            FileSource::Bytes { file_name, content_type, bytes } => File {
                name: part.name.clone(),
                file_name: file_name.clone(),
                content_type: content_type.clone(),
                bytes: bytes.clone(),
            },
            FileSource::Url(address) => {
                let wrong = |why: String| Failure {
                    param: Some(part.name.clone()),
                    ..Failure::new(Class::Request, why)
                };
                let url: Url = address.parse().map_err(|_| wrong("is no URL".into()))?;
                guard::check_url(&url, false).map_err(|refusal| wrong(refusal.to_string()))?;
                let file_name =
                    url.path_segments().and_then(|mut path| path.next_back()).unwrap_or("file").to_owned();
                let fetched =
                    fetch(stranger, url, INPUT_CAP).await.map_err(|failure| wrong(failure.message))?;
                let content_type = fetched.content_type.unwrap_or_else(|| "application/octet-stream".into());
                File { name: part.name.clone(), file_name, content_type, bytes: fetched.bytes }
            }
        };
        files.push(file);
    }
    Ok(files)
}

/// Where a result lies: `true` when it is on the provider's own host and port, which may be private.
pub(super) fn result_url(model: &ModelTarget, url: &str) -> Result<(Url, bool), Failure> {
    let wrong = |why: String| Failure::new(Class::Misconfigured, format!("the result's address: {why}"));
    let url: Url = url.parse().map_err(|error| wrong(format!("{error}")))?;
    let own = same_host(&url, model.base_url.as_deref().unwrap_or(&model.provider.base_url))
        && same_host(&url, &model.provider.base_url);
    let allowed = own && model.provider.allow_private_network;
    guard::check_url(&url, allowed).map_err(|refusal| match refusal {
        Refusal::Private(address) => {
            wrong(format!("{address} is private, and not the provider's own host and port"))
        }
        refusal => wrong(refusal.to_string()),
    })?;
    Ok((url, own))
}

/// GETs at most `cap` bytes.
pub(super) async fn fetch(client: &Client, url: Url, cap: usize) -> Result<Fetched, Failure> {
    let get = async {
        let response = client.get(url).send().await.map_err(|error| {
            Failure::new(Class::NotSent, format!("could not be fetched: {}", innermost(&error)))
        })?;
        let status = response.status();
        if !status.is_success() {
            let passes = matches!(status.as_u16(), 404 | 408 | 425 | 429) || status.is_server_error();
            let class = if passes { Class::Upstream } else { Class::Misconfigured };
            return Err(Failure::new(class, format!("could not be fetched: status {status}"))
                .with_status(status.as_u16()));
        }
        let content_type = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .map(str::to_owned);
        Ok(Fetched { content_type, bytes: read_all(response, cap).await? })
    };
    tokio::time::timeout(FETCH_TIME, get)
        .await
        .unwrap_or_else(|_| Err(Failure::new(Class::Upstream, "could not be fetched within 60 s")))
}

/// A private network is allowed for exactly the host and port of the provider's own base URL.
pub(super) fn same_host(url: &Url, base: &str) -> bool {
    base.parse::<Url>().is_ok_and(|base| {
        base.host() == url.host() && base.port_or_known_default() == url.port_or_known_default()
    })
}
