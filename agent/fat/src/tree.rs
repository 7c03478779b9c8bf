//! Which files there are.

use std::collections::{BTreeMap, btree_map::Entry};

use crate::FatError;

/// Folders within each other: whoever walks through them does it by recursion.
const DEEPEST: usize = 32;

pub type Children<'a> = BTreeMap<String, Node<'a>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    File(&'a [u8]),
    Folder(Children<'a>),
}

/// Files and folders; paths go from the root, with `/` between names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree<'a>(pub(crate) Children<'a>);

impl<'a> Tree<'a> {
    /// Makes the folders above it, too.
    pub fn file(&mut self, path: &str, content: &'a [u8]) -> Result<(), FatError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.below(above)?.entry(name.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(Node::File(content));
                Ok(())
            }
            Entry::Occupied(there) => Err(match there.get() {
                Node::File(_) => FatError::Twice(path.to_owned()),
                Node::Folder(_) => FatError::FileAndFolder(path.to_owned()),
            }),
        }
    }

    /// Nothing happens if it is there.
    pub fn folder(&mut self, path: &str) -> Result<(), FatError> {
        self.below(path).map(drop)
    }

    fn below(&mut self, path: &str) -> Result<&mut Children<'a>, FatError> {
        if path.matches('/').count() >= DEEPEST {
            return Err(FatError::Deep(path.to_owned()));
        }
        let mut here = &mut self.0;
        for name in path.split('/').filter(|_| !path.is_empty()) {
            let node = here
                .entry(name.to_owned())
                .or_insert_with(|| Node::Folder(BTreeMap::new()));
            match node {
                Node::Folder(children) => here = children,
                Node::File(_) => return Err(FatError::FileAndFolder(path.to_owned())),
            }
        }
        Ok(here)
    }
}
