//! Hosts that a change names: whether they can be found, for a warning. They are saved all the same.

use std::time::Duration;

use serde_json::Value;

use super::{Catalog, Change, Difference};

/// How long a name may take to be found.
const PATIENCE: Duration = Duration::from_secs(2);

impl Catalog {
    /// What is doubtful about the hosts that `difference` brings: a name that does not resolve, or only to
    /// addresses that a call would be refused.
    pub async fn warnings(&self, difference: &Difference) -> Vec<String> {
        let mut warnings = Vec::new();
        for change in &difference.changes {
            if let Some((host, port)) = new_host(change)
                && let Err(why) =
                    self.look_up(&host, port, change.after["allow_private_network"] == true).await
            {
                warnings.push(format!("{}: base_url: {why}; saved all the same", change.object));
            }
        }
        warnings
    }

    async fn look_up(&self, host: &str, port: u16, allow_private: bool) -> Result<(), String> {
        let found = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((host, port))).await;
        let addresses: Vec<_> = match found {
            Ok(Ok(addresses)) => addresses.collect(),
            Ok(Err(_)) | Err(_) => return Err(format!("{host} does not resolve")),
        };
        let Some(guard) = &self.guard else { return Ok(()) };
        let refused =
            |address: &std::net::SocketAddr| guard(&format!("http://{address}"), allow_private).is_err();
        match addresses.iter().find(|address| !refused(address)) {
            Some(_) => Ok(()),
            None => Err(format!("{host} resolves only to addresses that are never called from here")),
        }
    }
}

/// The name and port of an address that was not there before.
fn new_host(change: &Change) -> Option<(String, u16)> {
    let written = change.after.get("base_url").and_then(Value::as_str)?;
    if change.before.get("base_url").and_then(Value::as_str) == Some(written) {
        return None;
    }
    let url: http::Uri = written.parse().ok()?;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    Some((url.host()?.trim_matches(['[', ']']).to_owned(), port))
}
