//! Whether a request comes from our own pages.

use http::{HeaderMap, header};

/// Whether the browser says that the request comes from a page of this origin: by
/// `Sec-Fetch-Site`, else (browsers do not send it over plain HTTP to another host) by `Origin`,
/// which must be `public_url` or carry the `Host` of the request. A request that says neither
/// comes from no browser that we know, and is refused.
pub fn is_same_origin(headers: &HeaderMap, public_url: &str) -> bool {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if let Some(site) = text(http::HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    let Some(origin) = text(header::ORIGIN) else {
        return false;
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    origin.eq_ignore_ascii_case(public_url.trim_end_matches('/'))
        || authority.is_some_and(|a| text(header::HOST).is_some_and(|host| a.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(headers: &[(&'static str, &str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                let value = value.parse().expect("a header value");
                (http::HeaderName::from_static(name), value)
            })
            .collect();
        is_same_origin(&headers, "https://forebay.example.com/")
    }

    #[test]
    fn the_browsers_own_word_decides() {
        assert!(same(&[("sec-fetch-site", "same-origin")]));
        for elsewhere in ["same-site", "cross-site", "none", "nonsense"] {
            let origin = ("origin", "https://forebay.example.com");
            assert!(!same(&[("sec-fetch-site", elsewhere), origin]), "{elsewhere}");
        }
    }

    #[test]
    fn without_it_the_origin_must_be_ours() {
        assert!(same(&[("origin", "https://forebay.example.com")]));
        assert!(same(&[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:8080")]));
        assert!(!same(&[("origin", "http://127.0.0.1:9999"), ("host", "127.0.0.1:8080")]));
        assert!(!same(&[("origin", "null"), ("host", "null")]));
        assert!(!same(&[("host", "127.0.0.1:8080")]));
        assert!(!same(&[]));
    }
}
