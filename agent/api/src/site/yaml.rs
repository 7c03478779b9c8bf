//! YAML text to a tree that remembers where everything stands.
//!
//! Scalars stay text: `name: 0123` is the name `0123`, never a number. Anchors, aliases, tags and further documents
//! are refused, because a person who meets them in a small file more likely made a typing error than meant them.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::SiteProblem;

/// Where something stands; lines and columns count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl From<&Marker> for Position {
    fn from(mark: &Marker) -> Self {
        Self {
            line: mark.line(),
            column: mark.col() + 1,
        }
    }
}

impl Position {
    pub const START: Self = Self { line: 1, column: 1 };

    pub fn problem(self, message: impl Into<String>) -> SiteProblem {
        SiteProblem {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

#[derive(Debug)]
pub struct Node {
    pub place: Position,
    pub value: Value,
}

#[derive(Debug)]
pub enum Value {
    /// `key:` with nothing behind it, `~` or `null`.
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

impl Value {
    /// For messages: "expected a list, found {}".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "keys with values",
        }
    }
}

#[derive(Debug)]
pub struct Key {
    pub place: Position,
    pub name: String,
}

/// Lists inside maps inside lists …: more than a person needs, and far from the end of the stack.
const DEEPEST: usize = 16;

/// The first document of `text`; an empty text is [`Value::Null`].
pub fn parse_yaml(text: &str) -> Result<Node, SiteProblem> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
    };
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => {
                return Ok(Node {
                    place: Position::START,
                    value: Value::Null,
                });
            }
            (Event::DocumentStart(_), _) => break,
            _ => {}
        }
    }
    let (event, span) = reader.next()?;
    let root = reader.node(event, span, 0)?;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), span) => {
                return Err(Position::from(&span.start)
                    .problem("a second document starts here; keep one, without `---`"));
            }
            _ => {}
        }
    }
}

struct Reader<'input> {
    parser: Parser<'input, saphyr_parser::StrInput<'input>>,
}

impl<'input> Reader<'input> {
    fn next(&mut self) -> Result<(Event<'input>, Span), SiteProblem> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| explain(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(
        &mut self,
        event: Event<'input>,
        span: Span,
        depth: usize,
    ) -> Result<Node, SiteProblem> {
        let place = Position::from(&span.start);
        if depth > DEEPEST {
            return Err(place.problem("nested too deeply; `site.yaml` has at most three levels"));
        }
        let value = match event {
            Event::Alias(_) => return Err(place.problem("`*name` refers to an anchor, which `site.yaml` does not use; put quotes around the value")),
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) if anchor > 0 => {
                return Err(place.problem("`&name` makes an anchor, which `site.yaml` does not use; put quotes around the value"));
            }
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return Err(place.problem("`!name` makes a tag, which `site.yaml` does not use; put quotes around the value"));
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "" | "~" | "null") => Value::Null,
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => Value::List(self.list(depth)?),
            Event::MappingStart(..) => Value::Map(self.map(depth)?),
            _ => Value::Null,
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, SiteProblem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, SiteProblem> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(entries);
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            let Value::Text(name) = key.value else {
                return Err(key.place.problem("a key is expected here, such as `name:`"));
            };
            entries.push((
                Key {
                    place: key.place,
                    name,
                },
                value,
            ));
        }
    }
}

fn explain(error: &ScanError) -> SiteProblem {
    Position::from(error.marker()).problem(format!(
        "not valid YAML: {}; check the indentation (spaces, no tabs) and the colons around this line",
        error.info()
    ))
}
