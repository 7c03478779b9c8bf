//! The API server's schema of the old version, made out of that of the new one.

use serde_json::{Map, Value, json};

use super::{
    VERSION,
    change::{Change, each},
    duration, paths, tidy,
};

/// Adds the old version to `definition` (a `CustomResourceDefinition` that has the new one alone), and who converts it: whoever answers
/// at `url` and shows a certificate of `authority` (PEM, in base64). Other definitions stay as they are.
pub fn definition(definition: &mut Value, url: &str, authority: &str) {
    let kind = definition.pointer("/spec/names/kind");
    let Some(paths) = kind.and_then(Value::as_str).and_then(paths) else {
        return;
    };
    let Some(versions) = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    let Some(old) = versions.first().map(|new| version(new.clone(), &paths)) else {
        return;
    };
    versions.push(old);
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": authority},
        },
    });
}

fn version(mut version: Value, paths: &[(String, Change)]) -> Value {
    version["name"] = VERSION.into();
    version["storage"] = false.into();
    version["deprecated"] = true.into();
    version["deprecationWarning"] =
        "v1beta1 of CAPM3 is converted: what is stored, and what the box writes, is v1beta2".into();
    if let Some(columns) = version.get_mut("additionalPrinterColumns") {
        rename_columns(columns, paths);
    }
    if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
        relax(schema);
        for (path, change) in paths.iter().rev() {
            each(schema, &schema_path(path), &mut |parent| {
                change.to_old_schema(parent);
            });
        }
    }
    version
}

/// From a path of fields to the same one of schemas.
fn schema_path(path: &str) -> String {
    let step = |step: &str| match step {
        "*" => "/items".to_owned(),
        field => format!("/properties/{field}"),
    };
    path.split('/').map(step).collect::<String>()[1..].to_owned()
}

/// A column shows the place where the value is in the old version.
fn rename_columns(columns: &mut Value, paths: &[(String, Change)]) {
    for column in columns.as_array_mut().into_iter().flatten() {
        for (path, change) in paths.iter().rev() {
            if let Change::Moved { old, new } = change
                && let Some(shown) = column["jsonPath"].as_str()
            {
                let dotted = |end: &str| format!(".{path}/{end}").replace('/', ".");
                if let Some(rest) = shown.strip_prefix(&dotted(new)) {
                    column["jsonPath"] = format!("{}{rest}", dotted(old)).into();
                }
            }
        }
    }
}

/// Takes the empty values that are left out on the way to the new version.
fn relax(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let mut rules = object.remove("x-kubernetes-validations");
            let required = object.get("required").cloned().unwrap_or_default();
            let required = required.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                for (name, property) in properties.iter_mut() {
                    if tidy::may_be_empty(name)
                        && !required.contains(&json!(name))
                        && allow_empty(property)
                    {
                        let (plain, said) = (
                            format!("has(self.{name})"),
                            format!("(has(self.{name}) && self.{name} != '')"),
                        );
                        reword(rules.as_mut(), &plain, &said);
                    }
                }
            }
            object.values_mut().for_each(relax);
            if let Some(rules) = rules {
                object.insert("x-kubernetes-validations".to_owned(), rules);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(relax),
        _ => {}
    }
}

/// Whether a text is there, which it was not allowed to be while empty.
fn allow_empty(property: &mut Value) -> bool {
    let Some(property) = property.as_object_mut() else {
        return false;
    };
    if property.get("minimum") == Some(&json!(1)) {
        property.insert("minimum".to_owned(), 0.into());
    }
    if let Some(Value::Array(words)) = property.get_mut("enum") {
        words.push("".into());
        return true;
    }
    property.remove("minLength").is_some()
}

fn reword(rules: Option<&mut Value>, from: &str, to: &str) {
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(text) = rule["rule"].as_str() {
            rule["rule"] = text.replace(from, to).into();
        }
    }
}

impl Change {
    /// The schema of an object that has these fields, as the old version has them.
    fn to_old_schema(self, parent: &mut Map<String, Value>) {
        match self {
            Self::Renamed { old, new } => {
                reword(
                    parent.get_mut("x-kubernetes-validations"),
                    &format!("self.{new}"),
                    &format!("self.{old}"),
                );
                move_property(parent, new, old);
            }
            Self::Moved { old, new } => move_property(parent, new, old),
            Self::Opposite { old, new } => {
                let schema = json!({
                    "type": "boolean",
                    "description": format!("The opposite of {new}, for which it counts where that is missing."),
                });
                insert_property(parent, old, schema);
                let conflict = json!({
                    "rule": format!("!has(self.{old}) || !has(self.{new}) || self.{old} != self.{new}"),
                    "message": format!("{new} and {old} contradict each other: leave {old} out"),
                });
                let rules = parent
                    .entry("x-kubernetes-validations")
                    .or_insert_with(|| json!([]));
                if let Some(rules) = rules.as_array_mut() {
                    rules.push(conflict);
                }
            }
            Self::Listed {
                field, key, value, ..
            } => {
                let property = parent
                    .get_mut("properties")
                    .and_then(|properties| properties.get_mut(field));
                if let Some(property) = property {
                    *property = map_schema(property, key, value);
                }
            }
            Self::Seconds { old, new } => {
                if let Some(seconds) = take_property(parent, new) {
                    insert_property(parent, old, duration_schema(&seconds));
                }
            }
            Self::OnlyOld(fields) => {
                for field in fields {
                    let schema = json!({
                        "type": "string",
                        "description": "Kept, and without meaning.",
                    });
                    insert_property(parent, field, schema);
                }
            }
            Self::OnlyNew(field) => {
                take_property(parent, field);
            }
        }
    }
}

/// Of a text, out of the schema of the seconds that it becomes.
fn duration_schema(seconds: &Value) -> Value {
    let mut schema = json!({
        "type": "string",
        "description": seconds["description"],
        "pattern": duration::PATTERN,
        "maxLength": 32,
    });
    if let Some(default) = seconds["default"].as_u64() {
        schema["default"] = duration::text(default).into();
    }
    if let Some(least) = seconds["minimum"].as_u64() {
        schema["x-kubernetes-validations"] = json!([{
            "rule": format!("duration(self) >= duration('{least}s')"),
            "message": format!("it is {least}s at least"),
        }]);
    }
    schema
}

/// Of a map, out of the schema of the list that it becomes.
fn map_schema(list: &Value, key: &str, value: Option<&str>) -> Value {
    let mut item = list["items"].clone();
    let named = item["properties"][key].clone();
    let inner = if let Some(value) = value {
        item["properties"][value].take()
    } else {
        if let Some(item) = item.as_object_mut() {
            take_property(item, key);
        }
        item
    };
    let mut map = json!({"type": "object", "additionalProperties": inner});
    let sizes = [
        ("description", "description"),
        ("maxItems", "maxProperties"),
    ];
    for (of_list, of_map) in sizes {
        if !list[of_list].is_null() {
            map[of_map] = list[of_list].clone();
        }
    }
    // The API server takes no rule for a map of anything.
    let is_typed = map["additionalProperties"]["type"].is_string();
    if let (true, Some(least), Some(most)) = (
        is_typed,
        named["minLength"].as_u64(),
        named["maxLength"].as_u64(),
    ) {
        map["x-kubernetes-validations"] = json!([{
            "rule": format!("self.all({key}, size({key}) >= {least} && size({key}) <= {most})"),
            "message": format!("each {key} here has {least} to {most} letters"),
        }]);
    }
    map
}

fn move_property(parent: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(schema) = take_property(parent, from) {
        insert_property(parent, to, schema);
    }
}

/// A property by its path of fields; objects that have no property left go with it.
fn take_property(parent: &mut Map<String, Value>, path: &str) -> Option<Value> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let properties = parent.get_mut("properties")?.as_object_mut()?;
    if rest.is_empty() {
        let found = properties.remove(first);
        if let Some(Value::Array(required)) = parent.get_mut("required") {
            required.retain(|name| name != first);
            if required.is_empty() {
                parent.remove("required");
            }
        }
        return found;
    }
    let inner = properties.get_mut(first)?.as_object_mut()?;
    let found = take_property(inner, rest);
    let is_hollow = inner["properties"].as_object().is_some_and(Map::is_empty);
    if is_hollow {
        properties.remove(first);
    }
    found
}

fn insert_property(parent: &mut Map<String, Value>, path: &str, schema: Value) {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let properties = parent.entry("properties").or_insert_with(|| json!({}));
    if rest.is_empty() {
        properties[first] = schema;
        return;
    }
    if properties[first].is_null() {
        properties[first] = json!({"type": "object"});
    }
    if let Some(inner) = properties[first].as_object_mut() {
        insert_property(inner, rest, schema);
    }
}
