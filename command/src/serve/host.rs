//! The host of a request, as in RFC 9112: a name or an address with an optional port. Anything else is refused, because
//! other programs may interpret it in another way.

use std::net::{IpAddr, Ipv6Addr};

/// A host without its port.
#[derive(Debug, PartialEq, Eq)]
pub enum Host<'a> {
    Address(IpAddr),
    /// Without the dot that can end a complete name.
    Name(&'a str),
}

impl<'a> Host<'a> {
    /// Parses a host, which may be empty. `None` if it is neither a name nor an address.
    pub fn read(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            return is_port(port).then_some(Self::Address(address.into()));
        }
        let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let in_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if !name.bytes().all(in_names) || !is_port(port) {
            return None;
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        Some(name.parse().map_or(Self::Name(name), |address| Self::Address(IpAddr::V4(address))))
    }

    /// Whether an attacker cannot choose what it means: an address, or a name that always means this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Name(name) => name.to_ascii_lowercase().ends_with(".localhost"),
        }
    }

    pub fn is_named(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if !own.is_empty() && own.eq_ignore_ascii_case(name))
    }
}

/// Whether a text is empty, or a colon with an optional port.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| {
            port.is_empty() || port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::Host;
    use std::net::Ipv6Addr;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        assert_eq!(Host::read("owl.example.:80"), Some(Host::Name("owl.example")));
        assert_eq!(Host::read("[::1]:8080"), Some(Host::Address(Ipv6Addr::LOCALHOST.into())));
        assert_eq!(Host::read("[::1]"), Host::read("[::1]:"));
        assert_eq!(Host::read(""), Some(Host::Name("")));
        for wrong in
            ["[::1].evil.example", "[::1", "::1", "a@b", "a b", "a:b", "a:99999", "a:+1", "a/b", "[a]", "\u{fc}"]
        {
            assert_eq!(Host::read(wrong), None, "{wrong}");
        }
    }
}
