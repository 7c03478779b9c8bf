//! Which page a path is, and what a query says of it. What nobody understands is as if it were not there.

use firstlight_api::status::HostState;
use firstlight_requests::{is_plain, unescape};

/// Of words that somebody seeks by.
const LONGEST: usize = 200;

/// All there are for who may look.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Page {
    /// What a person wants to know first.
    Front,
    /// The servers, or some of them.
    Hosts(Filter),
    /// One server, by its name.
    Host(String),
    Clusters,
    Software,
    Store,
    Box,
}

/// Which servers, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Words that all must be in what is known of a server.
    pub words: String,
    pub state: Option<HostState>,
    pub sort: Sort,
    pub group: Group,
}

/// By which column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sort {
    #[default]
    Name,
    State,
    /// Those first whose state began last.
    Since,
    Address,
    Hardware,
}

/// Under which headings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Group {
    #[default]
    None,
    State,
    Cluster,
    Hardware,
    Switch,
}

impl Sort {
    pub const ALL: [Self; 5] = [
        Self::Name,
        Self::State,
        Self::Since,
        Self::Address,
        Self::Hardware,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Since => "since",
            Self::Address => "address",
            Self::Hardware => "hardware",
        }
    }
}

impl Group {
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::State,
        Self::Cluster,
        Self::Hardware,
        Self::Switch,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::State => "state",
            Self::Cluster => "cluster",
            Self::Hardware => "hardware",
            Self::Switch => "switch",
        }
    }
}

impl Page {
    /// `path` is plain; `None`: it is no page.
    pub fn of(path: &str, query: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Front,
            "/hosts" => Self::Hosts(Filter::of(query)),
            "/clusters" => Self::Clusters,
            "/software" => Self::Software,
            "/store" => Self::Store,
            "/box" => Self::Box,
            _ => {
                let name = path.strip_prefix("/hosts/")?;
                Self::Host(unescape(name).to_string()).plain()?
            }
        })
    }

    fn plain(self) -> Option<Self> {
        let is_plain = matches!(&self, Self::Host(name) if is_plain(name));
        is_plain.then_some(self)
    }

    /// `/hosts?state=failed`, as a browser has it after the host's name.
    pub fn of_target(target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self::of(path, query)
    }
}

impl Filter {
    fn of(query: &str) -> Self {
        let mut filter = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "q" => filter.words = value.trim().chars().take(LONGEST).collect(),
                "state" => {
                    let mut all = HostState::ALL.into_iter();
                    filter.state = all.find(|state| state.as_str() == value);
                }
                "sort" => {
                    let mut all = Sort::ALL.into_iter();
                    filter.sort = all.find(|sort| sort.as_str() == value).unwrap_or_default();
                }
                "group" => {
                    let mut all = Group::ALL.into_iter();
                    filter.group = all.find(|by| by.as_str() == value).unwrap_or_default();
                }
                _ => {}
            }
        }
        filter
    }

    /// The address of the table of these servers.
    pub fn address(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.words.is_empty() {
            query.append_pair("q", &self.words);
        }
        if let Some(state) = self.state {
            query.append_pair("state", state.as_str());
        }
        if self.sort != Sort::default() {
            query.append_pair("sort", self.sort.as_str());
        }
        if self.group != Group::default() {
            query.append_pair("group", self.group.as_str());
        }
        match query.finish().as_str() {
            "" => "/hosts".to_owned(),
            query => format!("/hosts?{query}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_is_a_page_or_none() {
        for (target, page) in [
            ("/", Some(Page::Front)),
            ("/box", Some(Page::Box)),
            ("/box?x=y", Some(Page::Box)),
            ("/hosts", Some(Page::Hosts(Filter::default()))),
            ("/hosts/n1", Some(Page::Host("n1".to_owned()))),
            ("/hosts/", None),
            ("/hosts/n1/disks", None),
            ("/hosts/..%2fn1", None),
            ("/images/node.raw.zst", None),
        ] {
            assert_eq!(Page::of_target(target), page, "{target}");
        }
    }

    #[test]
    fn what_a_query_says_in_words_that_nobody_knows_is_left_out() {
        let filter = Filter::of("q=+rack+7&state=failed&sort=since&group=switch&page=9");
        assert_eq!(
            filter,
            Filter {
                words: "rack 7".to_owned(),
                state: Some(HostState::Failed),
                sort: Sort::Since,
                group: Group::Switch,
            }
        );
        assert_eq!(
            filter.address(),
            "/hosts?q=rack+7&state=failed&sort=since&group=switch"
        );
        assert_eq!(
            Filter::of("state=well&sort=x&group=").address(),
            "/hosts",
            "as if it were not there"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_query_is_read_and_a_filter_finds_its_way_back(query in "([a-z]{0,5}=?[\\PC%+&]{0,20}&?){0,5}", long in "q=.{0,900}") {
            for query in [query, long] {
                let filter = Filter::of(&query);
                proptest::prop_assert!(filter.words.chars().count() <= LONGEST);
                let back = Page::of_target(&filter.address()).unwrap();
                proptest::prop_assert_eq!(back, Page::Hosts(filter));
            }
        }

        #[test]
        fn any_target_is_a_page_or_none(target in "/(hosts/?)?[\\PC%./?]{0,40}") {
            if let Some(Page::Host(name)) = Page::of_target(&target) {
                proptest::prop_assert!(is_plain(&name));
            }
        }
    }
}
