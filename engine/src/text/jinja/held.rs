//! Values that a template stores, whose size and depth are known.
//!
//! The engine's containers do not record how deeply they nest, and dropping, comparing or printing them recurses once
//! per level. Some are lazy: each item is computed through all the containers they were made of. So a value is
//! converted to [`Held`] before a variable, a loop or a filter's caller gets it: a container whose items exist, whose
//! depth is at most [`DEPTH`] and whose size was counted once.

use super::budget;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Serde};
use minijinja::{Error, ErrorKind, Value};
use std::fmt;
use std::sync::Arc;

/// The deepest nesting of containers in a variable.
pub const DEPTH: usize = 200;

/// The bytes of a container, and of each of its items.
const CONTAINER: u64 = 64;
const ITEM: u64 = 24;

/// The work of visiting a value.
const LOOK: u64 = 16;

/// The longest text of an integer, a sign and 39 digits, and of a float, the digits of the smallest ones.
const INTEGER: u64 = 40;
const FLOAT: u64 = 340;

/// The contents of a value.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The bytes of all its strings and numbers as text, plus an overhead for each container. Printed within a
    /// container they can take [`ESCAPED`] times as many.
    pub bytes: u64,
    depth: usize,
    /// Whether it contains a namespace or the variable of a loop, which can change later.
    pub changes: bool,
}

/// How many bytes a byte of a string can become when it is escaped.
pub const ESCAPED: u64 = 8;

/// A container whose items exist.
pub struct Held {
    inner: DynObject,
    repr: ObjectRepr,
    /// `None` if it can change.
    size: Option<Size>,
}

impl Held {
    /// The index that a key names in a list; iterables can be indexed like lists.
    fn place(&self, key: &Value) -> Option<Value> {
        let place = key.as_i64()?;
        let len = i64::try_from(self.inner.enumerator_len()?).ok()?;
        let place = if place < 0 { len.checked_add(place)? } else { place };
        (place >= 0).then(|| Value::from(place))
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

impl Object for Held {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.repr
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match self.repr {
            ObjectRepr::Iterable => self.inner.get_value(&self.place(key)?),
            _ => self.inner.get_value(key),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.inner.get_value_by_str(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.inner.enumerate()
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.inner.enumerator_len()
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.inner.is_true()
    }
}

/// Converts a value to the form in which a template may store it.
pub fn keep(value: Value) -> Result<Value, Error> {
    let Some(object) = value.as_object() else { return Ok(value) };
    let of_engine = changes(object) || object.repr() == ObjectRepr::Plain || object.type_name().ends_with("::Macro");
    if of_engine || object.downcast_ref::<Held>().is_some() {
        return Ok(value);
    }
    // These are more than lists and mappings: tuples print differently, and the items of `groupby` have names.
    if value.is_tuple() || value.is_kwargs() || object.type_name().ends_with("GroupTuple") {
        size(&value)?;
        return Ok(value);
    }
    let repr = object.repr();
    let exists = object.downcast_ref::<Vec<Value>>().is_some() || object.type_name().contains("IndexMap");
    if exists {
        return hold(object.clone(), repr);
    }
    match collected(&value, object)?.as_object() {
        Some(object) => hold(object.clone(), repr),
        None => Ok(value),
    }
}

/// The same for the result of an operation, whose text counts as well.
pub fn made(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => {
            budget::make(text.len() as u64)?;
            Ok(value)
        }
        None => keep(value),
    }
}

/// Stores a value in a namespace, which outlives a loop and could contain itself.
pub fn keep_in_namespace(value: Value) -> Result<Value, Error> {
    let value = keep(value)?;
    if size(&value)?.changes {
        return Err(error("a namespace cannot hold a namespace or the variable of a loop"));
    }
    Ok(value)
}

/// A list or mapping of the items that a container computes.
fn collected(value: &Value, object: &DynObject) -> Result<Value, Error> {
    budget::afford(items(value).saturating_mul(ITEM))?;
    if object.repr() == ObjectRepr::Map {
        let mut pairs = Vec::new();
        for pair in object.try_iter_pairs().into_iter().flatten() {
            pairs.push(pair);
            budget::work(LOOK)?;
            budget::afford(pairs.len() as u64 * ITEM)?;
        }
        return Ok(Value::from_pairs(pairs));
    }
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        items.push(item?);
        budget::work(LOOK)?;
        budget::afford(items.len() as u64 * ITEM)?;
    }
    Ok(Value::from(items))
}

fn hold(inner: DynObject, repr: ObjectRepr) -> Result<Value, Error> {
    let size = container(&inner, 0)?;
    let size = (!size.changes).then_some(size);
    Ok(Value::from_object(Held { inner, repr, size }))
}

/// The size of a value. Containers that are not [`Held`] are counted as newly made.
pub fn size(value: &Value) -> Result<Size, Error> {
    sized(value, 0)
}

fn sized(value: &Value, level: usize) -> Result<Size, Error> {
    let scalar = |bytes| Ok(Size { bytes, depth: 0, changes: false });
    if let Some(text) = value.as_str() {
        return scalar(text.len() as u64 + ITEM);
    }
    let Some(object) = value.as_object() else {
        let bytes = value.as_bytes().map_or(INTEGER, |bytes| bytes.len() as u64);
        return scalar(if value.is_number() && !value.is_integer() { FLOAT } else { bytes });
    };
    match object.downcast_ref::<Held>() {
        Some(Held { size: Some(size), .. }) if level + size.depth <= DEPTH => Ok(*size),
        Some(Held { size: Some(_), .. }) => Err(too_deep()),
        Some(Held { inner, .. }) => container(inner, level),
        None => container(object, level),
    }
}

fn container(object: &DynObject, level: usize) -> Result<Size, Error> {
    if level >= DEPTH {
        return Err(too_deep());
    }
    let len = object.enumerator_len().unwrap_or(0) as u64;
    budget::work(LOOK)?;
    budget::make(CONTAINER.saturating_add(len.saturating_mul(ITEM)))?;
    let mut sum = Size { bytes: CONTAINER, depth: 1, changes: changes(object) };
    let mut add = |value: &Value| -> Result<(), Error> {
        budget::work(LOOK)?;
        let size = sized(value, level + 1)?;
        sum.bytes = sum.bytes.saturating_add(size.bytes);
        sum.depth = sum.depth.max(size.depth + 1);
        sum.changes |= size.changes;
        Ok(())
    };
    match object.repr() {
        ObjectRepr::Map if is_loop(object) => {}
        ObjectRepr::Map => {
            object.try_iter_pairs().into_iter().flatten().try_for_each(|(key, value)| {
                add(&key)?;
                add(&value)
            })?;
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            object.try_iter().into_iter().flatten().try_for_each(|item| add(&item))?;
        }
        _ => {}
    }
    Ok(sum)
}

/// Whether an object is mutable: the engine has two such types, both private.
fn changes(object: &DynObject) -> bool {
    is_loop(object) || object.type_name().ends_with("::Namespace")
}

/// Whether an object is the variable `loop`.
fn is_loop(object: &DynObject) -> bool {
    object.type_name().ends_with("::Loop")
}

/// The number of items of a container; 0 for anything else.
pub fn items(value: &Value) -> u64 {
    value.as_object().and_then(DynObject::enumerator_len).unwrap_or(0) as u64
}

/// Converts JSON, which nests less deeply than [`DEPTH`], and adds the bytes that it takes.
pub fn from_json(json: serde_json::Value, bytes: &mut u64) -> Result<Value, Error> {
    *bytes += CONTAINER;
    let inner = match json {
        serde_json::Value::String(text) => {
            *bytes += text.len() as u64;
            return Ok(text.into());
        }
        serde_json::Value::Array(items) => {
            let items = items.into_iter().map(|item| from_json(item, bytes)).collect::<Result<Vec<_>, _>>()?;
            Value::from(items)
        }
        serde_json::Value::Object(entries) => {
            let mut pairs = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                *bytes += CONTAINER + key.len() as u64;
                pairs.push((Value::from(key), from_json(value, bytes)?));
            }
            Value::from_pairs(pairs)
        }
        scalar => return Ok(Value::from(Serde(scalar))),
    };
    keep(inner)
}

fn too_deep() -> Error {
    error(&format!("a value is nested more than {DEPTH} levels deep"))
}

fn error(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}
