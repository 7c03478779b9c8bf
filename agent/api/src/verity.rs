//! The hash tree behind each layer of a slot, as the kernel's dm-verity reads it (its format 1, SHA-256, no salt): with the root of the tree
//! every block is checked when it is read. Pure; whoever has the bytes brings them.
//!
//! A layer is data in blocks, then the tree: the top level first, digests of the data last. How much of a layer is data follows from its
//! length.

use sha2::{Digest as _, Sha256};

use crate::digest::Sha256Digest;

/// Of data and tree, in bytes.
pub const BLOCK: usize = 4096;
const BYTES: u64 = BLOCK as u64;
/// Digests in a block of the tree.
const FAN: u64 = BYTES / 32;

/// Blocks of each level of the tree over so many blocks of data, the lowest first.
fn levels(data: u64) -> impl Iterator<Item = u64> {
    let above = |blocks: u64| (blocks > 1).then(|| blocks.div_ceil(FAN));
    std::iter::successors(above(data), move |blocks| above(*blocks))
}

/// Blocks of data in a layer of so many bytes; `None`: no layer has that length.
pub fn data_blocks(length: u64) -> Option<u64> {
    let all = length / BYTES;
    let whole = |data: u64| data + levels(data).sum::<u64>();
    let (mut found, mut most) = (0, all);
    while found < most {
        let middle = found + (most - found) / 2;
        if whole(middle) < all {
            found = middle + 1;
        } else {
            most = middle;
        }
    }
    (length.is_multiple_of(BYTES) && found > 0 && whole(found) == all).then_some(found)
}

/// A tree that is being made.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Of the data.
    digests: Vec<[u8; 32]>,
}

impl Tree {
    /// The next block of data.
    pub fn push(&mut self, block: &[u8; BLOCK]) {
        self.digests.push(Sha256::digest(block).into());
    }

    /// What stands behind the data, and its root. There was a block of data.
    pub fn finish(self) -> (Vec<u8>, Sha256Digest) {
        let mut digests = self.digests;
        let mut levels = Vec::new();
        while digests.len() > 1 {
            let mut level = digests.concat();
            level.resize(level.len().next_multiple_of(BLOCK), 0);
            digests = level
                .chunks(BLOCK)
                .map(|block| Sha256::digest(block).into())
                .collect();
            levels.push(level);
        }
        levels.reverse();
        let root = digests.first().copied().unwrap_or_default();
        (levels.concat(), root.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(blocks: u64) -> (Vec<u8>, Sha256Digest) {
        let mut tree = Tree::default();
        for number in 0..blocks {
            let mut block = [0; BLOCK];
            block[..8].copy_from_slice(&number.to_le_bytes());
            tree.push(&block);
        }
        tree.finish()
    }

    const ROOTS: [(u64, &str); 5] = [
        (
            1,
            "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7",
        ),
        (
            2,
            "f92ee626c329ac6003c22a70a104bf89d8d1a326ff913e648a44698b9ed65195",
        ),
        (
            128,
            "2c7b230a3e5d3960d3aa7ba13cf085b94af1280aa4e96fb5e799fd0d642abb0c",
        ),
        (
            129,
            "89cc567fe951297b2c88cc2ebdbf35afabdf58c8129bef1981b5cd3137fb6e51",
        ),
        (
            16_385,
            "3a47772a5ddbd8d1d86d62c8e1134d1d9edc3c00014cc6cd2175fa12ff5736ed",
        ),
    ];

    /// Roots by `veritysetup format --no-superblock --salt=-` (2.6.1) over blocks that begin with their number.
    #[test]
    fn roots_are_those_of_veritysetup() {
        for (blocks, root) in ROOTS {
            assert_eq!(tree(blocks).1.to_string(), root, "{blocks}");
        }
    }

    #[test]
    fn how_much_is_data_follows_from_the_length() {
        let lengths = |data: u64| (data + levels(data).sum::<u64>()) * BYTES;
        for data in (1..40_000).chain([1 << 20, (1 << 21) + 1, 1 << 24]) {
            assert_eq!(data_blocks(lengths(data)), Some(data));
        }
        assert_eq!(lengths(129) / BYTES, 132);
        for bytes in [0, 512, BYTES * 2, BYTES * 131, BYTES + 512] {
            assert_eq!(data_blocks(bytes), None, "{bytes}");
        }
        assert_eq!(data_blocks(BYTES), Some(1));
        assert!(data_blocks(u64::MAX / BYTES * BYTES).is_none_or(|data| data > 1 << 50));
        for blocks in [1, 2, 128, 129, 128 * 128 + 1] {
            assert_eq!(
                tree(blocks).0.len() as u64,
                lengths(blocks) - blocks * BYTES
            );
        }
    }
}
