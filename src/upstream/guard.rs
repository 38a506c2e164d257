//! The guard against server-side request forgery: which addresses a provider's URL may lead to.
//!
//! A private address is refused at save and at every call, unless the provider allows exactly that
//! host and port; an address that serves cloud metadata is refused always.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Why an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The URL can't be called at all.
    #[error("{0}")]
    Url(&'static str),
    /// The address is private and the provider does not allow it.
    #[error("{0} is a private address; set allow_private_network on the provider if it is meant")]
    Private(IpAddr),
    /// The address serves credentials to whoever asks.
    #[error("{0} is a metadata address and is never called")]
    Metadata(IpAddr),
}

/// Checks what of `url` can be checked without resolving its name.
///
/// `allow_private` is the provider's setting for exactly this host and port.
pub fn check_url(url: &Url, allow_private: bool) -> Result<(), Refusal> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Url("must be an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Url("must not carry a user name or password"));
    }
    let Some(host) = url.host_str() else {
        return Err(Refusal::Url("must name a host"));
    };
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) => check_address(address, allow_private),
        Err(_) => Ok(()),
    }
}

/// Checks an address that a name resolved to.
pub fn check_address(address: IpAddr, allow_private: bool) -> Result<(), Refusal> {
    let address = canonical(address);
    if is_metadata(address) {
        return Err(Refusal::Metadata(address));
    }
    if !allow_private && !is_public(address) {
        return Err(Refusal::Private(address));
    }
    Ok(())
}

/// An IPv4 address in IPv6's clothes is the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.segments() {
            // 64:ff9b::/96, the well-known prefix of NAT64.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            _ => v6.to_canonical(),
        },
        IpAddr::V4(_) => address,
    }
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4 == Ipv4Addr::new(100, 100, 100, 200),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b)))
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.segments()[..2] == [0x2001, 0xdb8])
        }
    }
}

/// Resolves names as the system does, and lets only allowed addresses through: what is connected to
/// is what was checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedResolver {
    pub(super) allow_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut refused = None;
            let mut allowed: Vec<SocketAddr> = Vec::new();
            for address in found {
                match check_address(address.ip(), allow_private) {
                    Ok(()) => allowed.push(address),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(refusal) if allowed.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, allow_private: bool) -> Result<(), Refusal> {
        check_url(&url.parse().expect("a URL"), allow_private)
    }

    #[test]
    fn private_addresses_need_leave_and_metadata_addresses_never_get_it() {
        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "[::1]",
            "[fd12::1]",
            "0.0.0.0",
            "100.64.0.1",
            "[::ffff:127.0.0.1]",
            "2130706433",
            "[64:ff9b::7f00:1]",
        ] {
            let url = format!("http://{host}:9100/v1");
            assert!(matches!(check(&url, false), Err(Refusal::Private(_))), "{url}");
            assert_eq!(check(&url, true), Ok(()), "{url}");
        }
        for host in
            ["169.254.169.254", "[fe80::1]", "100.100.100.200", "[fd00:ec2::254]", "[::ffff:169.254.169.254]"]
        {
            let url = format!("http://{host}/v1");
            assert!(matches!(check(&url, true), Err(Refusal::Metadata(_))), "{url}");
        }
        assert_eq!(check("https://93.184.215.14/v1", false), Ok(()));
        assert_eq!(check("https://[2606:4700::1111]/v1", false), Ok(()));
    }

    #[test]
    fn only_plain_web_urls_are_called() {
        assert!(check("ftp://example.com/", true).is_err());
        assert!(check("http://user:secret@example.com/", true).is_err());
    }
}
