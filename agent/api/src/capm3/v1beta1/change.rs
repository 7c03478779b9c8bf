//! How a value differs between the two versions, and how it gets from one to the other.

use serde_json::{Map, Value, json};

use super::duration;

/// Below a path from the object that a table is about: fields by `/`, with `*` for every item of a list.
#[derive(Clone, Copy, Debug)]
pub struct Difference(pub &'static str, pub Change);

/// What only the old version has, by its place there (RFC 6901).
pub type Old = Map<String, Value>;

#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// The same value by another name.
    Renamed {
        old: &'static str,
        new: &'static str,
    },
    /// The opposite of the new one, which the old version has beside it, and which is stronger.
    Opposite {
        old: &'static str,
        new: &'static str,
    },
    /// A map in the old version, in the new one a list of objects that have their key at `key`, and the value at `value`, or beside
    /// the key. The list is sorted by the field `by`.
    Listed {
        field: &'static str,
        key: &'static str,
        value: Option<&'static str>,
        by: &'static str,
    },
    /// The same value in another place, from the same object on.
    Moved {
        old: &'static str,
        new: &'static str,
    },
    /// A duration as Go writes it in the old version, in the new one whole seconds.
    Seconds {
        old: &'static str,
        new: &'static str,
    },
    /// The new version has no place for these.
    OnlyOld(&'static [&'static str]),
    /// The old version has no place for it.
    OnlyNew(&'static str),
}

impl Change {
    /// The fields of `parent` as the new version has them.
    pub fn to_new(self, parent: &mut Map<String, Value>) {
        match self {
            Self::Renamed { old, new } | Self::Moved { old, new } => carry(parent, old, new),
            Self::Opposite { old, new } => {
                if let Some(Value::Bool(opposite)) = parent.remove(old)
                    && !parent.get(new).is_some_and(Value::is_boolean)
                {
                    parent.insert(new.to_owned(), (!opposite).into());
                }
            }
            Self::Listed {
                field,
                key,
                value,
                by,
            } => {
                let Some(Value::Object(map)) = parent.get_mut(field) else {
                    return;
                };
                let item = |(name, inner): (String, Value)| match (value, inner) {
                    (Some(value), inner) => json!({key: name, value: inner}),
                    (None, Value::Object(mut inner)) => {
                        inner.insert(key.to_owned(), name.into());
                        Value::Object(inner)
                    }
                    (None, _) => json!({key: name}),
                };
                let mut list: Vec<Value> = std::mem::take(map).into_iter().map(item).collect();
                list.sort_by(|a, b| rank(&a[by]).cmp(&rank(&b[by])));
                parent.insert(field.to_owned(), list.into());
            }
            Self::Seconds { old, new } => {
                let text = parent.remove(old);
                if let Some(seconds) = text
                    .as_ref()
                    .and_then(Value::as_str)
                    .and_then(duration::seconds)
                {
                    parent.insert(new.to_owned(), seconds.into());
                }
            }
            Self::OnlyOld(_) | Self::OnlyNew(_) => {}
        }
    }

    /// The fields of `parent` as the old version has them.
    pub fn to_old(self, parent: &mut Map<String, Value>) {
        match self {
            Self::Renamed { old, new } | Self::Moved { old, new } => carry(parent, new, old),
            Self::Opposite { old, new } => {
                if let Some(Value::Bool(opposite)) = parent.get(new) {
                    parent.insert(old.to_owned(), (!opposite).into());
                }
            }
            Self::Listed {
                field, key, value, ..
            } => {
                let Some(Value::Array(list)) = parent.get_mut(field) else {
                    return;
                };
                let entry = |mut item: Value| {
                    let item = item.as_object_mut()?;
                    let name = item.remove(key)?.as_str()?.to_owned();
                    let inner = match value {
                        Some(value) => item.remove(value).unwrap_or_default(),
                        None => Value::Object(std::mem::take(item)),
                    };
                    Some((name, inner))
                };
                let map: Map<_, _> = std::mem::take(list).into_iter().filter_map(entry).collect();
                parent.insert(field.to_owned(), map.into());
            }
            Self::Seconds { old, new } => {
                if let Some(seconds) = parent.remove(new).as_ref().and_then(Value::as_u64) {
                    parent.insert(old.to_owned(), duration::text(seconds).into());
                }
            }
            Self::OnlyOld(_) | Self::OnlyNew(_) => {}
        }
    }
}

/// Numbers by their value, texts by their letters.
fn rank(value: &Value) -> (Option<i64>, Option<&str>) {
    (value.as_i64(), value.as_str())
}

/// Brings what is at `from` to `to`; objects that hold nothing any more are gone.
fn carry(parent: &mut Map<String, Value>, from: &str, to: &str) {
    let Some(value) = take(parent, from) else {
        return;
    };
    let (way, name) = to.rsplit_once('/').unwrap_or(("", to));
    let mut holder = parent;
    for step in way.split('/').filter(|step| !step.is_empty()) {
        let inner = holder.entry(step).or_insert_with(|| json!({}));
        if !inner.is_object() {
            *inner = json!({});
        }
        let Value::Object(inner) = inner else { return };
        holder = inner;
    }
    holder.insert(name.to_owned(), value);
}

fn take(parent: &mut Map<String, Value>, path: &str) -> Option<Value> {
    let Some((first, rest)) = path.split_once('/') else {
        return parent.remove(path);
    };
    let inner = parent.get_mut(first)?.as_object_mut()?;
    let found = take(inner, rest);
    if inner.is_empty() {
        parent.remove(first);
    }
    found
}

/// Every object at `path`.
pub fn each(value: &mut Value, path: &str, act: &mut impl FnMut(&mut Map<String, Value>)) {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match (first, value) {
        ("", Value::Object(object)) => act(object),
        ("*", Value::Array(items)) => {
            for item in items {
                each(item, rest, act);
            }
        }
        (field, Value::Object(object)) => {
            if let Some(inner) = object.get_mut(field) {
                each(inner, rest, act);
            }
        }
        _ => {}
    }
}

/// The field `name` of `value`, made an empty object if it is not there. `None`: `value` is no object.
pub fn entry<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let object = value.as_object_mut()?;
    Some(object.entry(name).or_insert_with(|| json!({})))
}
