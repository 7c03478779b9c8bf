//! The ways of servers as bars: a phase is a stretch of its colour, and all bars of a picture have one scale. The last stretch of a
//! server that is on its way goes on to the right edge, which the browser moves with the time.

use firstlight_api::status::{HostState, HostStatus};
use maud::{Markup, html};

use super::{
    View,
    parts::{Span, Tone, host_link, moment, pill, progress, since, wide},
};

/// Bars in a picture.
const MOST: usize = 40;
/// Whoever has arrived stays in it for so long, in seconds: of ten that install at once the first is not gone when the last one comes.
const LINGERS: f64 = 600.0;

/// What a server was, is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    pub state: HostState,
    pub started: f64,
    /// `None`: it is that now.
    pub ended: Option<f64>,
}

/// All that is known, oldest first.
pub fn phases(host: &HostStatus) -> Vec<Phase> {
    let ended = host.history.iter().map(|event| Phase {
        state: event.state,
        started: event.started,
        ended: Some(event.ended),
    });
    let now = Phase {
        state: host.state,
        started: host.since,
        ended: None,
    };
    ended.chain([now]).collect()
}

/// The states of whom the box works on.
const fn is_on_its_way(state: HostState) -> bool {
    matches!(Tone::of_host(state), Tone::Busy | Tone::Bad)
}

/// From where it last stood still.
fn last_way(host: &HostStatus) -> Vec<Phase> {
    let all = phases(host);
    let is_rest = |phase: &Phase| phase.ended.is_some() && !is_on_its_way(phase.state);
    let from = all.iter().rposition(is_rest).map_or(0, |at| at + 1);
    all[from..].to_vec()
}

/// How long a state takes here: the median of those that are over, and of how many.
pub fn usually(view: View<'_>, state: HostState) -> Option<(f64, usize)> {
    let events = view.site.hosts.iter().flat_map(|host| &host.history);
    let mut spans: Vec<f64> = events
        .filter(|event| event.state == state)
        .map(|event| event.ended - event.started)
        .collect();
    spans.sort_by(f64::total_cmp);
    Some((*spans.get(spans.len() / 2)?, spans.len()))
}

/// Servers on their way, and those that have just arrived, as one picture. Nothing without one that is on its way.
pub fn picture(view: View<'_>) -> Markup {
    let now = view.site.uptime;
    let hosts = view.site.hosts.iter();
    let (mut under_way, mut shown) = (0, Vec::new());
    for host in hosts {
        let is_busy = Tone::of_host(host.state) == Tone::Busy;
        under_way += usize::from(is_busy);
        let has_arrived = Tone::of_host(host.state) == Tone::Good
            && !host.history.is_empty()
            && now - host.since < LINGERS;
        if is_busy || has_arrived {
            shown.push((host, last_way(host)));
        }
    }
    if under_way == 0 {
        return Markup::default();
    }
    let starts = shown
        .iter()
        .filter_map(|(_, way)| Some(way.first()?.started));
    let from = starts.fold(now, f64::min);
    let more = shown.len().saturating_sub(MOST);
    html! {
        section.card {
            h2 { "Servers on their way" }
            (wide("Servers on their way", &html! { table.ways {
                thead { tr { th scope="col" { "Server" } th scope="col" { "State" } th scope="col" { "Way" } th scope="col" { "In all" } } }
                tbody {
                    @for (host, way) in shown.iter().take(MOST) {
                        tr id={ "way-" (host.mac) } {
                            th scope="row" { (host_link(&host.name)) }
                            td {
                                (pill(Tone::of_host(host.state), host.state.as_str()))
                                @if let Some(percent) = host.percent { " " (percent) " %" }
                            }
                            td.bar { (bar(view, way, from)) }
                            td { (since(view, way.first().map_or(host.since, |phase| phase.started))) }
                        }
                    }
                }
            } }))
            @if more > 0 { p.dim { "and " (more) " more; all are among the " a href="/hosts" { "servers" } "." } }
            (legend(&shown.iter().flat_map(|(_, way)| way).map(|phase| phase.state).collect::<Vec<_>>()))
        }
    }
}

fn legend(states: &[HostState]) -> Markup {
    let seen = HostState::ALL
        .into_iter()
        .filter(|state| states.contains(state));
    html! {
        ul.legend { @for state in seen { li { svg class="key" viewBox="0 0 1 1" aria-hidden="true" { rect class={ "s-" (state.as_str()) } width="1" height="1" {} } (state.as_str()) } } }
    }
}

/// One way. Its numbers are seconds of uptime; to readers who hear it says its phases.
pub fn bar(view: View<'_>, way: &[Phase], from: f64) -> Markup {
    let width = (view.site.uptime - from).max(1.0);
    let words: Vec<String> = way
        .iter()
        .map(|phase| match phase.ended {
            Some(ended) => format!("{} {}", phase.state.as_str(), Span(ended - phase.started)),
            None => format!("now {}", phase.state.as_str()),
        })
        .collect();
    html! {
        svg role="img" aria-label=(words.join(", ")) preserveAspectRatio="none" data-from=(format_args!("{from:.1}"))
            viewBox=[view.booted.map(|_| format!("0 0 {width:.1} 10"))] {
            @for phase in way {
                // What goes on is cut at the right edge.
                rect class={ "s-" (phase.state.as_str()) } x=(format_args!("{:.1}", phase.started - from)) height="10"
                    width=(phase.ended.map_or_else(|| "9999999".to_owned(), |ended| format!("{:.1}", (ended - phase.started).max(0.1)))) {
                    title { (phase.state.as_str()) @if let Some(ended) = phase.ended { " " (Span(ended - phase.started)) } }
                }
            }
        }
    }
}

/// Of one server: each phase with its time of the day.
pub fn table(view: View<'_>, host: &HostStatus) -> Markup {
    let all = phases(host);
    let way = last_way(host);
    let from = way.first().map_or(host.since, |phase| phase.started);
    html! {
        section.card {
            h2 { "Its way" }
            div.bar { (bar(view, &way, from)) }
            @if let Some(percent) = host.percent { (progress(percent, &host.step)) }
            (wide("Its way", &html! {
                table {
                thead { tr { th scope="col" { "State" } th scope="col" { "Began" } th scope="col" { "Took" } th scope="col" { "Usually" } } }
                tbody {
                    @for phase in all.iter().rev() {
                        tr {
                            th scope="row" { svg class="key" viewBox="0 0 1 1" aria-hidden="true" { rect class={ "s-" (phase.state.as_str()) } width="1" height="1" {} } (phase.state.as_str()) }
                            td { (moment(view, phase.started)) }
                            td {
                                @match phase.ended {
                                    Some(ended) => span.time { (Span(ended - phase.started)) },
                                    None => { "for " (since(view, phase.started)) },
                                }
                            }
                            td.time {
                                @if let Some((median, of)) = usually(view, phase.state).filter(|_| is_on_its_way(phase.state)) {
                                    (Span(median)) " (of " (of) ")"
                                }
                            }
                        }
                    }
                }
            }
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::status::{HostEvent, SiteStatus};

    use super::*;
    use crate::web::page::Reader;

    fn host(states: &[(HostState, f64)]) -> HostStatus {
        let (last, before) = states.split_last().unwrap();
        let ends = states[1..].iter().map(|(_, started)| *started);
        HostStatus {
            state: last.0,
            since: last.1,
            history: before
                .iter()
                .zip(ends)
                .map(|(&(state, started), ended)| HostEvent {
                    state,
                    started,
                    ended,
                })
                .collect(),
            ..HostStatus::default()
        }
    }

    #[test]
    fn a_way_begins_where_the_server_last_stood_still() {
        use HostState as S;
        let states = |host: &HostStatus| {
            let way = last_way(host).into_iter();
            way.map(|phase| phase.state).collect::<Vec<_>>()
        };
        let first = [
            (S::Discovered, 0.0),
            (S::Registering, 5.0),
            (S::Inspecting, 9.0),
        ];
        assert_eq!(states(&host(&first)), [S::Registering, S::Inspecting]);
        let again = [
            (S::Running, 0.0),
            (S::Deprovisioning, 5.0),
            (S::Failed, 9.0),
            (S::Deprovisioning, 20.0),
        ];
        assert_eq!(
            states(&host(&again)),
            [S::Deprovisioning, S::Failed, S::Deprovisioning]
        );
        let there = [(S::Provisioned, 0.0), (S::Running, 5.0)];
        assert_eq!(states(&host(&there)), [S::Provisioned, S::Running]);
        assert_eq!(states(&host(&[(S::Running, 5.0)])), [S::Running]);
    }

    #[test]
    fn what_is_usual_is_the_median_of_what_is_over() {
        use HostState as S;
        let site = SiteStatus {
            hosts: [10.0, 300.0, 20.0]
                .map(|took| host(&[(S::Inspecting, 100.0), (S::Available, 100.0 + took)]))
                .to_vec(),
            uptime: 500.0,
            ..SiteStatus::default()
        };
        let view = View {
            site: &site,
            reader: Reader::Anybody,
            booted: None,
        };
        assert_eq!(usually(view, S::Inspecting), Some((20.0, 3)));
        assert_eq!(usually(view, S::Available), None);
        assert_eq!(picture(view).into_string(), "", "nobody is on its way");
    }
}
