//! The parts of a URL that a request needs.

use firstlight_api::bounded;

use super::HttpError;

/// An absolute URL without user and fragment. It has no white space and no control character, so that it fits into a request's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `https`; the other scheme is `http`.
    pub tls: bool,
    /// Without brackets.
    pub host: String,
    /// 80 or 443 when the URL names none.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub target: String,
}

impl Url {
    /// Fails with [`HttpError::Url`].
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        Self::try_parse(text).ok_or_else(|| refused(text))
    }

    fn try_parse(text: &str) -> Option<Self> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let uri: http::Uri = text.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let default = if tls { 443 } else { 80 };
        // With whoever logs in it begins otherwise.
        let port = match uri.authority()?.as_str().strip_prefix(uri.host()?)? {
            "" => default,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        let host = uri.host()?.trim_matches(['[', ']']);
        if host.is_empty() {
            return None;
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let slash = if target.starts_with('/') { "" } else { "/" };
        Some(Self {
            tls,
            host: host.to_owned(),
            port,
            target: format!("{slash}{target}"),
        })
    }

    /// Everything before the target.
    fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// `host:port` as in the `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.tls, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// The URL that a `Location` header means here.
    pub fn join(&self, location: &str) -> Result<Self, HttpError> {
        if location.contains("://") {
            Self::parse(location)
        } else if location.starts_with('/') {
            Self::parse(&format!("{}{location}", self.origin()))
        } else {
            Err(refused(location))
        }
    }
}

/// People read it, and a server may have said it.
fn refused(text: &str) -> HttpError {
    HttpError::Url(bounded::text(text))
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.origin(), self.target)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_come_back_as_they_were_and_nonsense_is_refused() {
        for text in [
            "http://172.22.0.1/images/node.raw.zst",
            "https://172.22.0.1:6385/v1/lookup?addresses=a,b",
            "http://[fd00::1]:8080/x",
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Url::parse("http://box").unwrap().target, "/");
        for text in [
            "ftp://x/",
            "http:///x",
            "http://a:b/",
            "http://u@h/",
            "http://a /",
            "node.raw",
            "http://[::1/",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_may_be_absolute_or_a_path() {
        let url = Url::parse("http://box/a").unwrap();
        assert_eq!(url.join("/b?c").unwrap().to_string(), "http://box/b?c");
        assert_eq!(
            url.join("https://other/b").unwrap().to_string(),
            "https://other/b"
        );
        assert!(url.join("b").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_taken_fits_into_one_line_of_a_request(text in ".{0,60}", scheme in "https?://") {
            let box_url = Url::parse("http://172.22.0.1/a").unwrap();
            for url in [Url::parse(&format!("{scheme}{text}")), box_url.join(&text), box_url.join(&format!("/{text}"))] {
                let Ok(url) = url else { continue };
                prop_assert!(url.target.starts_with('/') && !url.host.is_empty());
                let plain = |text: &str| !text.contains(|c: char| c.is_control() || c.is_whitespace());
                prop_assert!(plain(&url.target) && plain(&url.host), "{url:?}");
                prop_assert_eq!(Url::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
