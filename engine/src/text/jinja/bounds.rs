//! Bounds of a template's source, checked before it is parsed.
//!
//! The engine's parser, compiler and the drop of its syntax tree recurse once for each operator of an expression and
//! each `elif` of a chain, but limit only brackets and blocks. The compiler also evaluates expressions of literals, so
//! `'x' * 100000000` is allocated before anything can count it.

use super::syntax;
use minijinja::machinery::{Span, Token, tokenize};
use minijinja::{Error, ErrorKind};

/// The most bytes of a source. Published templates have up to 30 KB.
pub const SOURCE: usize = 128 << 10;

/// The most tokens in one tag. The longest tags of published templates have about 200.
pub const TAG: usize = 2000;

/// The longest name in bytes. Names are copied and hashed on every lookup.
pub const NAME: usize = 256;

/// The most `elif` in all chains that are open at one point of the source.
pub const ELIFS: usize = 500;

/// The most bytes of all products of literals, each multiplied by the number of tokens around it, because the engine
/// computes a product again for each operator around it.
const PRODUCTS: u64 = 64 << 20;

/// Checks a source of at most [`SOURCE`] bytes. A source that cannot be tokenized is left to the parser, which reports
/// the error and stops there.
pub fn check(source: &str) -> Result<(), Error> {
    let mut scan = Scan::default();
    for token in tokenize(source, false, syntax()?) {
        let Ok((token, span)) = token else { break };
        scan.add(&token).map_err(|message| at(span, &message))?;
    }
    Ok(())
}

fn at(span: Span, message: &str) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("line {}: {message}", span.start_line))
}

#[derive(Default)]
struct Scan {
    tag: Tag,
    /// For each `if` that is open, the number of its `elif`.
    chains: Vec<usize>,
    products: u64,
}

/// What has been read of a tag.
#[derive(Default)]
struct Tag {
    tokens: usize,
    /// Whether the previous token may end an expression of literals, and whether a `*` follows it.
    literal: bool,
    times: bool,
    /// Whether literals are multiplied.
    product: bool,
    /// The bytes of literal strings and the number of items of literal lists.
    bytes: u64,
    /// The product of all numbers, each plus 1.
    numbers: u64,
    powers: bool,
}

impl Scan {
    fn add(&mut self, token: &Token<'_>) -> Result<(), String> {
        match token {
            Token::TemplateData(_) => {}
            Token::VariableStart | Token::BlockStart => self.tag = Tag { numbers: 1, ..Tag::default() },
            Token::VariableEnd | Token::BlockEnd => return self.end(),
            token => {
                if self.tag.tokens == 0
                    && let Token::Ident(name) = token
                {
                    self.open(name)?;
                }
                if let Token::Ident(name) = token
                    && name.len() > NAME
                {
                    return Err(format!("a name has more than {NAME} bytes"));
                }
                self.tag.add(token);
                if self.tag.tokens > TAG {
                    return Err(format!("a tag has more than {TAG} tokens"));
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &str) -> Result<(), String> {
        match name {
            "if" => self.chains.push(0),
            "elif" => {
                if let Some(chain) = self.chains.last_mut() {
                    *chain += 1;
                }
                if self.chains.iter().sum::<usize>() > ELIFS {
                    return Err(format!("more than {ELIFS} `elif` are open"));
                }
            }
            "endif" => drop(self.chains.pop()),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Tag { tokens, product, bytes, numbers, powers, .. } = self.tag;
        if product && bytes > 0 {
            let made = if powers { u64::MAX } else { bytes.saturating_mul(numbers) };
            self.products = self.products.saturating_add(made.saturating_mul(tokens as u64));
            if self.products > PRODUCTS {
                return Err("products of literals take too many bytes".into());
            }
        }
        Ok(())
    }
}

impl Tag {
    fn add(&mut self, token: &Token<'_>) {
        self.tokens += 1;
        // Zero counts as one, since `0 == 0` is 1.
        let mut number = |number: u64| self.numbers = self.numbers.saturating_mul(number.max(1).saturating_add(1));
        match token {
            Token::Int(int) => number(*int),
            Token::Int128(int) => number(u64::try_from(**int).unwrap_or(u64::MAX)),
            Token::Eq | Token::Ne | Token::Lt | Token::Lte | Token::Gt | Token::Gte => number(1),
            Token::Ident(name) if ["true", "True", "false", "False", "not", "in"].contains(name) => number(1),
            // A quotient of such numbers can be any number.
            Token::Float(_) => self.powers = true,
            Token::Str(text) => self.bytes += text.len() as u64,
            Token::String(text) => self.bytes += text.len() as u64,
            Token::Comma | Token::BracketOpen => self.bytes += 24,
            Token::Pow => self.powers = true,
            _ => {}
        }
        let literal = match token {
            Token::Ident(name) => ["true", "false", "none", "True", "False", "None", "not"].contains(name),
            _ => true,
        };
        self.product |= self.times && literal;
        self.times = matches!(token, Token::Mul) && self.literal;
        self.literal = literal;
    }
}
