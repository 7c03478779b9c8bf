//! Numbers from a seed, so that the state machine stays pure.

use uuid::Uuid;

/// `SplitMix64`
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from `from` to `to`: hosts that start together must not ask together.
    pub fn spread(&mut self, from: u32, to: u32) -> u32 {
        let span = u64::from(to - from) + 1;
        from + u32::try_from(self.next() % span).unwrap_or(0)
    }

    pub fn id(&mut self) -> Uuid {
        let (high, low) = (self.next(), self.next());
        uuid::Builder::from_u128(u128::from(high) << 64 | u128::from(low))
            .with_version(uuid::Version::Random)
            .into_uuid()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
