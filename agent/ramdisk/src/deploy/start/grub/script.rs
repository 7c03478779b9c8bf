//! GRUB's scripts as a tree: words, commands, `if`, functions and menu entries, as `grub-mkconfig` and people write them.
//!
//! Must not: run anything. What this does not know (`for`, `while`) is a [`Node::Loop`], which refuses to be run.

/// A whole configuration is some kilobytes; with a line for each of many kernels a hundred.
const MOST_NODES: usize = 20_000;
const MOST_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of GRUB's configuration: {what}")]
pub struct ScriptError {
    pub line: usize,
    pub what: &'static str,
}

/// One word before its variables are filled in.
pub type Word = Vec<Piece>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Variable {
        name: String,
        /// Within double quotes: its value stays one word.
        quoted: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Command(Vec<Word>),
    If {
        /// Conditions with what they guard, first to last.
        arms: Vec<(Vec<Node>, Vec<Node>)>,
        otherwise: Vec<Node>,
    },
    Function {
        name: String,
        body: Vec<Node>,
    },
    Entry {
        head: Vec<Word>,
        body: Vec<Node>,
        is_submenu: bool,
    },
    Loop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// A line end or a semicolon.
    End,
}

/// Parses one file.
pub fn parse(text: &str) -> Result<Vec<Node>, ScriptError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        nodes: 0,
    };
    let (nodes, _) = parser.block(&[], 0)?;
    Ok(nodes)
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    found: Vec<(usize, Token)>,
    word: Option<Word>,
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ScriptError> {
    let mut lexer = Lexer {
        rest: text.chars().peekable(),
        line: 1,
        found: Vec::new(),
        word: None,
    };
    while let Some(letter) = lexer.rest.next() {
        match letter {
            '\n' | ';' => {
                lexer.end_word();
                lexer.found.push((lexer.line, Token::End));
                lexer.line += usize::from(letter == '\n');
            }
            '#' if lexer.word.is_none() => while lexer.rest.next_if(|c| *c != '\n').is_some() {},
            '\\' => lexer.escaped(),
            '\'' => lexer.single_quoted()?,
            '"' => lexer.double_quoted()?,
            '$' => lexer.variable(false),
            letter if letter.is_whitespace() => lexer.end_word(),
            letter => lexer.push(letter),
        }
    }
    lexer.end_word();
    Ok(lexer.found)
}

impl Lexer<'_> {
    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.found.push((self.line, Token::Word(word)));
        }
    }

    fn push(&mut self, letter: char) {
        let word = self.word.get_or_insert_default();
        match word.last_mut() {
            Some(Piece::Text(text)) => text.push(letter),
            _ => word.push(Piece::Text(letter.to_string())),
        }
    }

    fn error(&self, what: &'static str) -> ScriptError {
        ScriptError {
            line: self.line,
            what,
        }
    }

    fn escaped(&mut self) {
        match self.rest.next() {
            Some('\n') => self.line += 1,
            Some(letter) => self.push(letter),
            None => {}
        }
    }

    fn single_quoted(&mut self) -> Result<(), ScriptError> {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(()),
                Some(letter) => {
                    self.line += usize::from(letter == '\n');
                    self.push(letter);
                }
                None => return Err(self.error("a quote does not end")),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), ScriptError> {
        let word = self.word.get_or_insert_default();
        // An empty pair is a word, too.
        word.push(Piece::Text(String::new()));
        loop {
            match self.rest.next() {
                Some('"') => return Ok(()),
                Some('$') => self.variable(true),
                Some('\\') => match self.rest.next_if(|c| matches!(c, '"' | '\\' | '$' | '\n')) {
                    Some('\n') => self.line += 1,
                    Some(letter) => self.push(letter),
                    None => self.push('\\'),
                },
                Some(letter) => {
                    self.line += usize::from(letter == '\n');
                    self.push(letter);
                }
                None => return Err(self.error("a quote does not end")),
            }
        }
    }

    fn variable(&mut self, quoted: bool) {
        let mut name = String::new();
        let is_letter = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        if self.rest.next_if_eq(&'{').is_some() {
            while let Some(letter) = self.rest.next_if(|c| *c != '}' && *c != '\n') {
                name.push(letter);
            }
            self.rest.next_if_eq(&'}');
        } else if let Some(special) = self.rest.next_if(|c| matches!(c, '?' | '@' | '#' | '*')) {
            name.push(special);
        } else {
            while let Some(letter) = self.rest.next_if(is_letter) {
                name.push(letter);
            }
        }
        if name.is_empty() {
            return self.push('$');
        }
        let word = self.word.get_or_insert_default();
        word.push(Piece::Variable { name, quoted });
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    nodes: usize,
}

impl Parser {
    fn error(&self, what: &'static str) -> ScriptError {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        let line = self.tokens.get(at).map_or(1, |(line, _)| *line);
        ScriptError { line, what }
    }

    /// Commands until one of `ends` begins one, which is given back; `None`: the file has ended, which only a block without
    /// `ends` may do.
    fn block(
        &mut self,
        ends: &[&'static str],
        depth: usize,
    ) -> Result<(Vec<Node>, Option<&'static str>), ScriptError> {
        if depth > MOST_DEPTH {
            return Err(self.error("blocks in blocks without end"));
        }
        let mut nodes = Vec::new();
        loop {
            while matches!(self.tokens.get(self.at), Some((_, Token::End))) {
                self.at += 1;
            }
            let Some((_, Token::Word(first))) = self.tokens.get(self.at) else {
                return match ends {
                    [] => Ok((nodes, None)),
                    _ => Err(self.error("a block does not end")),
                };
            };
            let word = plain(first).unwrap_or_default().to_owned();
            if let Some(end) = ends.iter().find(|end| **end == word) {
                self.at += 1;
                return Ok((nodes, Some(end)));
            }
            self.nodes += 1;
            if self.nodes > MOST_NODES {
                return Err(self.error("it has no end"));
            }
            nodes.push(self.node(&word, depth)?);
        }
    }

    fn node(&mut self, word: &str, depth: usize) -> Result<Node, ScriptError> {
        match word {
            "if" => {
                self.at += 1;
                self.condition(depth)
            }
            "function" => {
                self.at += 1;
                let head = self.head()?;
                let name = head.first().and_then(plain).unwrap_or_default().to_owned();
                let (body, _) = self.block(&["}"], depth + 1)?;
                Ok(Node::Function { name, body })
            }
            "menuentry" | "submenu" => {
                self.at += 1;
                let head = self.head()?;
                let (body, _) = self.block(&["}"], depth + 1)?;
                let is_submenu = word == "submenu";
                Ok(Node::Entry {
                    head,
                    body,
                    is_submenu,
                })
            }
            "for" | "while" | "until" => {
                self.at += 1;
                self.block(&["done"], depth + 1)?;
                Ok(Node::Loop)
            }
            _ => Ok(Node::Command(self.words())),
        }
    }

    /// After `if`.
    fn condition(&mut self, depth: usize) -> Result<Node, ScriptError> {
        let mut arms = Vec::new();
        loop {
            let (condition, _) = self.block(&["then"], depth + 1)?;
            let (body, end) = self.block(&["elif", "else", "fi"], depth + 1)?;
            arms.push((condition, body));
            let otherwise = match end {
                Some("elif") => continue,
                Some("else") => self.block(&["fi"], depth + 1)?.0,
                _ => Vec::new(),
            };
            return Ok(Node::If { arms, otherwise });
        }
    }

    /// Words up to the `{` that opens a block.
    fn head(&mut self) -> Result<Vec<Word>, ScriptError> {
        let mut head = Vec::new();
        while let Some((_, token)) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                Token::Word(word) if plain(word) == Some("{") => return Ok(head),
                Token::Word(word) => head.push(word.clone()),
                Token::End => {}
            }
        }
        Err(self.error("a block does not begin"))
    }

    fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some((_, Token::Word(word))) = self.tokens.get(self.at) {
            words.push(word.clone());
            self.at += 1;
        }
        words
    }
}

/// The text of a word without variables.
pub fn plain(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Piece::Text(text)] => Some(text),
        _ => None,
    }
}
