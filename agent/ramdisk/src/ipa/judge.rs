//! May these disks be written to? Asked beside a box in the moment before the first byte, with the box's order and what is
//! on the disks then: a report may be old, forged, or about disks that are not there any more.
//!
//! Pure, and errs on the side of data. Whatever it refuses the box judges anew with the next report.

use firstlight_api::order::{DiskId, DiskOrder, DiskPolicy, differences, is_free};

use super::facts::Judged;

/// Why nothing is written; ends up on the page.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    #[error(
        "nothing was written: the order does not say what the box has found on this server's disks (extra.{}); let the box \
         install and clean this server, through its BareMetalHost",
        firstlight_api::order::EXTRA
    )]
    NoOrder,
    #[error(
        "nothing was written: the box's order is for {0}, and something else was asked for; let the box install and clean \
         this server, through its BareMetalHost"
    )]
    OtherOrder(&'static str),
    #[error(
        "nothing was written: {0} was not in the server when its disks were judged; the box judges them again by itself"
    )]
    New(DiskId),
    #[error(
        "nothing was written: {0} is not in the server any more; put it back, or let the box judge the disks again"
    )]
    Gone(DiskId),
    #[error(
        "nothing was written: the disk {name} is not blank ({kinds} found); if its data does not matter, annotate the \
         server's BareMetalHost with firstlight.internal/install=wipe"
    )]
    Data { name: String, kinds: String },
    #[error(
        "nothing was erased: the disk {name} holds {kinds}, which this box did not install; if that does not matter, \
         annotate the server's BareMetalHost with firstlight.internal/install=wipe"
    )]
    NotOurs { name: String, kinds: String },
}

/// Before an image is written: every disk is as it was judged, whichever of them gets the image.
pub fn may_install(order: Option<&DiskOrder>, disks: &[Judged]) -> Result<(), Refusal> {
    let order = order.ok_or(Refusal::NoOrder)?;
    are_those(order, disks)?;
    match order.policy {
        DiskPolicy::Wipe => Ok(()),
        DiskPolicy::Blank => all_free(order, disks),
        DiskPolicy::GiveBack => Err(Refusal::OtherOrder("giving this server back")),
    }
}

/// Before disks are erased: which of them, in their order. What shows that they are ours goes last.
pub fn may_erase(order: Option<&DiskOrder>, disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    let order = order.ok_or(Refusal::NoOrder)?;
    match order.policy {
        DiskPolicy::Wipe => are_those(order, &disks)?,
        DiskPolicy::Blank => {
            are_those(order, &disks)?;
            all_free(order, &disks)?;
        }
        DiskPolicy::GiveBack => return given_back(order, disks),
    }
    Ok(disks)
}

fn given_back(order: &DiskOrder, disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    let ids: Vec<DiskId> = disks.iter().map(|disk| disk.disk.id()).collect();
    let (_, gone) = differences(&order.disks, &ids);
    if let Some(gone) = gone.first() {
        return Err(Refusal::Gone((*gone).clone()));
    }
    let is_marked = |disk: &Judged| {
        let mark = disk.found.mark;
        mark.is_some_and(|mark| mark.deployment() == order.deployment)
    };
    // Disks that nobody ordered to be erased are not looked at any further, and not touched.
    let mut ours: Vec<Judged> = disks
        .into_iter()
        .filter(|disk| order.disks.contains(&disk.disk.id()))
        .collect();
    let holds = |disk: &&Judged| !disk.found.signatures.is_empty();
    if let Some(other) = ours.iter().find(holds)
        && !ours.iter().any(is_marked)
    {
        return Err(Refusal::NotOurs {
            name: other.disk.name.clone(),
            kinds: other.found.signatures.join(", "),
        });
    }
    ours.sort_by_key(is_marked);
    Ok(ours)
}

/// The disks of the server are those of the order, all of them and no other.
fn are_those(order: &DiskOrder, disks: &[Judged]) -> Result<(), Refusal> {
    let ids: Vec<DiskId> = disks.iter().map(|disk| disk.disk.id()).collect();
    match differences(&order.disks, &ids) {
        (new, _) if !new.is_empty() => Err(Refusal::New(new[0].clone())),
        (_, gone) if !gone.is_empty() => Err(Refusal::Gone(gone[0].clone())),
        _ => Ok(()),
    }
}

fn all_free(order: &DiskOrder, disks: &[Judged]) -> Result<(), Refusal> {
    let other = disks
        .iter()
        .find(|disk| !is_free(&disk.found, order.deployment));
    other.map_or(Ok(()), |disk| {
        Err(Refusal::Data {
            name: disk.disk.name.clone(),
            kinds: disk.found.signatures.join(", "),
        })
    })
}

#[cfg(test)]
mod tests;
