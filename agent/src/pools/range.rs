//! Ranges of addresses of either version of IP. Pure.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
};

use firstlight_api::ipam::IpRange;

/// The first and the last address of a range, or what is wrong with it.
pub fn span(range: &IpRange) -> Result<(IpAddr, IpAddr), &'static str> {
    let subnet = range.subnet.map(|subnet| (subnet.first(), subnet.last()));
    let first = match (range.start, subnet) {
        (Some(start), _) => start,
        (None, Some((first, _))) => after(first).ok_or("has no address after its first one")?,
        (None, None) => return Err("has neither start nor subnet"),
    };
    let most = if first.is_ipv4() {
        IpAddr::from([u8::MAX; 4])
    } else {
        IpAddr::from([u8::MAX; 16])
    };
    let ends = [range.end, subnet.map(|(_, last)| last)];
    let last = ends.into_iter().flatten().min().unwrap_or(most);
    let of_both = |ip: IpAddr| ip.is_ipv4() == first.is_ipv4();
    let begins = subnet.is_none_or(|(begin, end)| of_both(begin) && (begin..=end).contains(&first));
    if !ends.into_iter().flatten().all(of_both) {
        Err("has addresses of IPv4 and of IPv6")
    } else if !begins {
        Err("starts outside of its subnet")
    } else if first > last {
        Err("ends before it starts")
    } else {
        Ok((first, last))
    }
}

pub fn is_in(range: &IpRange, ip: IpAddr) -> bool {
    span(range).is_ok_and(|(first, last)| (first..=last).contains(&ip))
}

pub fn after(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => Some(IpAddr::V4(ip.to_bits().checked_add(1)?.into())),
        IpAddr::V6(ip) => Some(IpAddr::V6(ip.to_bits().checked_add(1)?.into())),
    }
}

/// Any address between both, the same one for the same claim: a plan that is made again is the same plan.
pub fn somewhere(uid: &str, first: IpAddr, last: IpAddr) -> IpAddr {
    let half = |which: u8| {
        let mut hasher = DefaultHasher::new();
        (which, uid).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    let number = half(0) << 64 | half(1);
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let (first, last) = (u128::from(first.to_bits()), u128::from(last.to_bits()));
            let at = first + number % (last - first + 1);
            IpAddr::V4(u32::try_from(at).unwrap_or(u32::MAX).into())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let (first, last) = (first.to_bits(), last.to_bits());
            let size = (last - first).checked_add(1);
            IpAddr::V6((first + size.map_or(number, |size| number % size)).into())
        }
        (first, _) => first,
    }
}
