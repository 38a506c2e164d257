//! Ollama: its OpenAI-compatible endpoints, without a key.

/// Its compatible endpoints lie below `/v1`, also where the base URL is the server's own.
pub(super) fn compatible(base: &str) -> String {
    if base.ends_with("/v1") { base.to_owned() } else { format!("{}/v1", base.trim_end_matches("/api")) }
}

#[cfg(test)]
mod tests {
    use super::compatible;

    #[test]
    fn the_servers_own_address_will_do() {
        for base in ["http://127.0.0.1:11434", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/api"] {
            assert_eq!(compatible(base), "http://127.0.0.1:11434/v1");
        }
    }
}
