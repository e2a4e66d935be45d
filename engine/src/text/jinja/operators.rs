//! The filters that [`program`](super::program) inserts before the engine's instructions. Their names are not valid in
//! template syntax; `map` can call them by name, and they count there too.

use super::budget::{afford, work};
use super::held::{self, ESCAPED};
use minijinja::value::{ObjectRepr, Tuple};
use minijinja::{Environment, Error, ErrorKind, Value};

/// The cost of copying or visiting an item of a list, in work and in bytes.
pub const ITEM: u64 = 24;

/// The bytes of a variable that macros use: a node of a map.
const CLOSURE: u64 = 1024;

/// How many bytes of text are compared or searched per unit of work.
const COMPARED: u64 = 32;

pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("keep", held::keep);
    environment.add_filter("keep-in-namespace", held::keep_in_namespace);
    environment.add_filter("made", held::made);
    environment.add_filter("loop", begin_loop);
    environment.add_filter("closure", |_: Value| super::budget::make(CLOSURE));
    environment.add_filter("refuse-splat", refuse_splat);
    environment.add_filter("check-name", |name: Value| {
        let most = text(&name)?;
        work(most)?;
        afford(most).map(|()| name)
    });
    environment.add_filter("check-read", |operands: Value| check(operands, read));
    environment.add_filter("refuse-macro", |_: Value| refuse("a macro has more than 100 arguments"));
    environment.add_filter("refuse-cycle", |_: Value| refuse("loop.cycle() needs arguments"));
    environment.add_filter("~", concat);
    environment.add_filter("check+", |operands: Value| check(operands, add));
    environment.add_filter("check*", |operands: Value| check(operands, multiply));
    environment.add_filter("check[:]", |operands: Value| check(operands, slice));
    environment.add_filter("check[]", |operands: Value| check(operands, index));
    environment.add_filter("check==", |operands: Value| check(operands, compare));
    environment.add_filter("check-in", |operands: Value| check(operands, contains));
    environment.add_filter("check{}", |operands: Value| check(operands, keys));
    environment.add_filter("check**", |operands: Value| check(operands, merge));
    environment.add_filter("check-changed", |operands: Value| check(operands, changed));
}

/// Checks operands, and returns them reversed, because unpacking reverses them again.
fn check(operands: Value, check: fn(&[Value]) -> Result<(), Error>) -> Result<Value, Error> {
    let Some(tuple) = operands.downcast_object_ref::<Tuple>() else { return Ok(operands) };
    check(tuple)?;
    Ok(Tuple::from(tuple.iter().rev().cloned().collect::<Vec<_>>()).into())
}

fn refuse(why: &'static str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, why))
}

/// A recursive loop iterates over its operands without the check at the start of other loops.
fn read(operands: &[Value]) -> Result<(), Error> {
    work(operands.iter().map(len).sum::<u64>() / COMPARED)
}

/// The most bytes that a value takes as text. Visiting a container costs work.
pub fn text(value: &Value) -> Result<u64, Error> {
    let bytes = held::size(value)?.bytes;
    Ok(if value.as_object().is_some() { bytes.saturating_mul(ESCAPED) } else { bytes })
}

/// The work of visiting all of a value once.
fn whole(value: &Value) -> Result<(), Error> {
    work(held::size(value)?.bytes)
}

fn len(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.len() as u64)
}

fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    let most = text(left)?.saturating_add(text(right)?);
    work(most)?;
    afford(most)?;
    held::made(Value::from(format!("{left}{right}")))
}

fn add(operands: &[Value]) -> Result<(), Error> {
    let [left, right] = operands else { return Ok(()) };
    let bytes = [left, right].map(|value| len(value) + ITEM * held::items(value)).iter().sum();
    work(bytes)?;
    afford(bytes)
}

fn multiply(operands: &[Value]) -> Result<(), Error> {
    let [left, right] = operands else { return Ok(()) };
    let times = |value: &Value, count: &Value| {
        let bytes = len(value).saturating_add(ITEM.saturating_mul(held::items(value)));
        bytes.saturating_mul(count.as_usize().unwrap_or(0) as u64)
    };
    let bytes = times(left, right).max(times(right, left));
    afford(bytes)?;
    work(bytes)
}

fn slice(operands: &[Value]) -> Result<(), Error> {
    let Some(value) = operands.first() else { return Ok(()) };
    let bytes = len(value) + ITEM * held::items(value);
    work(bytes)?;
    afford(bytes)
}

/// Characters of a string are counted from its beginning. A mapping's key is hashed.
pub fn index(operands: &[Value]) -> Result<(), Error> {
    let [container, key, ..] = operands else { return Ok(()) };
    work(len(container))?;
    whole(key)
}

/// The keys of a mapping, each followed by its value, are hashed.
fn keys(operands: &[Value]) -> Result<(), Error> {
    operands.iter().step_by(2).try_for_each(whole)
}

pub fn compare(operands: &[Value]) -> Result<(), Error> {
    let [left, right] = operands else { return Ok(()) };
    match (left.as_object(), right.as_object()) {
        (Some(_), Some(_)) => {
            whole(left)?;
            whole(right)
        }
        _ => work(len(left).min(len(right)) / COMPARED),
    }
}

/// `left in right`, or any comparison in a chain, since it can be this one.
pub fn contains(operands: &[Value]) -> Result<(), Error> {
    let [left, right] = operands else { return Ok(()) };
    let (size, container) = (held::size(left)?.bytes, right.as_object());
    if right.as_str().is_some() {
        let most = if left.as_object().is_some() { text(left)? } else { 0 };
        afford(most)?;
        return work(most.saturating_add((len(left) + len(right)) / COMPARED));
    }
    match container {
        // Each item is compared with the value. Of two strings only the length of the shorter is read.
        Some(_) if left.as_object().is_some() => {
            whole(right)?;
            work(size.saturating_mul(held::items(right).max(1)))
        }
        Some(object) if object.repr() == ObjectRepr::Map => whole(left),
        Some(_) => work((len(left) / COMPARED + ITEM).saturating_mul(held::items(right).max(1))),
        None => Ok(()),
    }
}

fn merge(operands: &[Value]) -> Result<(), Error> {
    let bytes = operands.iter().map(|value| ITEM * held::items(value)).sum();
    work(bytes)?;
    super::budget::make(bytes)
}

/// `loop.changed(..)`, which stores its arguments and compares them with the previous ones.
fn changed(operands: &[Value]) -> Result<(), Error> {
    for value in operands.iter().skip(1) {
        if held::size(value)?.changes {
            return Err(error("`changed` accepts neither a namespace nor the variable of a loop"));
        }
        whole(value)?;
    }
    Ok(())
}

fn begin_loop(value: Value) -> Result<Value, Error> {
    work(len(&value))?;
    held::keep(value)
}

/// A list can hold any number of arguments, and no published template unpacks one.
fn refuse_splat(_: Value) -> Result<Value, Error> {
    Err(error("arguments from a list, as in `f(*list)`, are not supported"))
}

pub fn error(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
