//! The filters, tests, functions and methods that a template may use, each with its cost.
//!
//! The engine's own are called unchanged, after a check of what they will read and the most that they can make. Only
//! those in these tables exist, so a new version of the engine adds nothing uncounted.

use super::budget::{afford, work};
use super::held::{self, ESCAPED};
use super::operators::{self, ITEM, error, text};
use crate::text::{json, python, strftime};
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value, filters, functions, tests};

/// How much of the arguments is read.
#[derive(Clone, Copy)]
pub enum Reads {
    /// Strings, and only the first or last item of containers.
    Top,
    /// Strings and the items of containers, but not the items' contents.
    Items,
    /// Everything.
    All,
    /// Everything, once for each comparison of a sort.
    Sorted,
    /// Everything, once for each item.
    Squared,
}

/// The most bytes that a filter makes from its arguments.
type Makes = fn(&[Value]) -> Result<u64, Error>;

/// The cost of a filter.
pub type Cost = (Reads, Makes);

const TOP: Cost = (Reads::Top, |_| Ok(0));
const KEY: Cost = (Reads::Top, |args| operators::index(args).map(|()| 0));
const LIST: Cost = (Reads::Items, parts);
const TEXT: Cost = (Reads::All, escaped);
/// A list of beginnings or ends, each of which is compared.
const AFFIXES: Cost = (Reads::All, |_| Ok(0));
/// Each character of the text is looked for among those of the argument.
const STRIP: Cost = (Reads::All, |args| {
    let len = |at: usize| args.get(at).and_then(Value::as_str).map_or(0, |text| text.len() as u64);
    work(len(0).saturating_mul(len(1)))?;
    escaped(args)
});
const SORT: Cost = (Reads::Sorted, parts);
const SPLIT: Cost = (Reads::All, parts);

/// Calls `call` if the budget covers the cost, and converts its result to [`held`].
pub fn counted(
    (reads, makes): Cost,
    args: &[Value],
    call: impl FnOnce() -> Result<Value, Error>,
) -> Result<Value, Error> {
    read(reads, args)?;
    afford(makes(args)?)?;
    held::made(call()?)
}

fn read(reads: Reads, args: &[Value]) -> Result<(), Error> {
    let mut units: u64 = 0;
    for value in args {
        let strings = value.as_str().map_or(0, |text| text.len() as u64);
        units = units.saturating_add(match reads {
            Reads::Top => strings / 8,
            Reads::Items => strings + ITEM * held::items(value),
            Reads::All | Reads::Sorted | Reads::Squared => held::size(value)?.bytes,
        });
    }
    let items = args.first().map_or(0, held::items);
    // The names of attributes are split for each item.
    let names = match reads {
        Reads::Items | Reads::Sorted => args.iter().skip(1).map(names).fold(0u64, u64::saturating_add),
        _ => 0,
    };
    work(names.saturating_mul(items))?;
    work(match reads {
        // A comparison that ignores case copies both strings.
        Reads::Sorted => units.saturating_mul(4 * u64::from(items.max(1).ilog2() + 1)),
        Reads::Squared => units.saturating_mul(items.max(1)),
        _ => units,
    })
}

/// The bytes of a string, or of all strings among keyword arguments.
fn names(value: &Value) -> u64 {
    let len = |value: &Value| value.as_str().map_or(0, |text| text.len() as u64);
    match value.is_kwargs() {
        true => {
            let names = value.try_iter().into_iter().flatten();
            names.filter_map(|name| value.get_item(&name).ok()).map(|value| len(&value)).sum()
        }
        false => len(value),
    }
}

/// Text with everything escaped, or converted to longer characters.
fn escaped(args: &[Value]) -> Result<u64, Error> {
    args.iter().try_fold(0u64, |sum, value| Ok(sum.saturating_add(held::size(value)?.bytes.saturating_mul(ESCAPED))))
}

/// A value for each character of a string or item of a list.
fn parts(args: &[Value]) -> Result<u64, Error> {
    let part = |value: &Value| match value.as_str() {
        Some(text) => 2 * ITEM * text.len() as u64,
        None => ITEM * held::items(value),
    };
    Ok(args.iter().map(part).sum())
}

/// The same, and as many lists as the largest number in the arguments.
fn rows(args: &[Value]) -> Result<u64, Error> {
    Ok(parts(args)?.saturating_add(largest(args).saturating_mul(4 * ITEM)))
}

/// The largest number among positional and keyword arguments.
fn largest(args: &[Value]) -> u64 {
    let of = |value: &Value| value.as_i64().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let named = |value: &Value| match value.is_kwargs() {
        true => {
            let names = value.try_iter().into_iter().flatten();
            names.filter_map(|name| value.get_item(&name).ok()).map(|value| of(&value)).max().unwrap_or(0)
        }
        false => of(value),
    };
    args.iter().map(named).max().unwrap_or(0)
}

/// `replace`: the text, the pattern and the replacement.
fn replaced(args: &[Value]) -> Result<u64, Error> {
    let [value, from, to, ..] = args else { return Ok(0) };
    let (value, to) = (text(value)?, text(to)?);
    let from = from.as_str().map_or(1, str::len) as u64;
    Ok(value.saturating_add((value / from.max(1) + 1).saturating_mul(to)))
}

/// `join`: the items and the separator.
fn joined(args: &[Value]) -> Result<u64, Error> {
    let Some((list, others)) = args.split_first() else { return Ok(0) };
    let count = list.as_str().map_or(held::items(list), |text| text.len() as u64);
    let between = others.iter().try_fold(0u64, |sum, value| Ok::<_, Error>(sum.saturating_add(text(value)?)))?;
    Ok(text(list)?.saturating_mul(ESCAPED / 2).saturating_add(count.saturating_mul(between)))
}

/// `indent`, of all lines.
fn indented(args: &[Value]) -> Result<u64, Error> {
    let Some(value) = args.first() else { return Ok(0) };
    let lines = value.as_str().map_or(text(value)?, |text| text.matches('\n').count() as u64 + 1);
    Ok(text(value)?.saturating_add((lines + 1).saturating_mul(largest(args))))
}

/// `format`: each placeholder can take any argument, at the width given by the format or an argument.
fn formatted(args: &[Value]) -> Result<u64, Error> {
    let Some((Some(format), others)) = args.split_first().map(|(format, others)| (format.as_str(), others)) else {
        return Ok(0);
    };
    let places = format.matches(['%', '{']).count() as u64;
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let width = numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).max().unwrap_or(0);
    let width = if format.contains('*') { width.max(largest(others)) } else { width };
    let longest = others.iter().map(|value| Ok::<_, Error>(held::size(value)?.bytes.saturating_mul(ESCAPED)));
    let longest = longest.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
    // A number can have a separator after every digit, and a fill character has up to four bytes.
    Ok((format.len() as u64).saturating_add(places.saturating_mul(longest.saturating_add(width.saturating_mul(4)))))
}

/// `pprint`, which indents each line by four spaces per level.
fn printed(args: &[Value]) -> Result<u64, Error> {
    Ok(escaped(args)?.saturating_mul(4 * held::DEPTH as u64 / 16))
}

/// A filter, test or function that is called if the budget covers its cost.
fn counting(cost: Cost, inner: Value) -> impl Fn(&mut State<'_, '_>, Rest<ValueOrKwargs>) -> Result<Value, Error> {
    move |state, args| {
        let args = args.into_values();
        counted(cost, &args, || inner.call(state, &args))
    }
}

/// Adds everything that templates may call by name.
pub fn add_to(environment: &mut Environment<'_>) {
    macro_rules! add {
        ($add:ident, $module:ident, $cost:expr, $($name:literal = $item:ident),* $(,)?) => {
            $(environment.$add($name, counting($cost, Value::from_function($module::$item)));)*
        };
    }
    add!(
        add_filter,
        filters,
        TOP,
        "first" = first,
        "last" = last,
        "default" = default,
        "d" = default,
        "round" = round,
        "abs" = abs,
        "int" = int,
        "float" = float,
        "bool" = bool
    );
    add!(add_filter, filters, KEY, "attr" = attr);
    add!(add_filter, python, TOP, "length" = length, "count" = length);
    add!(
        add_filter,
        filters,
        LIST,
        "items" = items,
        "reverse" = reverse,
        "list" = list,
        "select" = select,
        "reject" = reject,
        "selectattr" = selectattr,
        "rejectattr" = rejectattr,
        "map" = map,
        "chain" = chain,
        "zip" = zip
    );
    add!(
        add_filter,
        filters,
        TEXT,
        "safe" = safe,
        "escape" = escape,
        "e" = escape,
        "lower" = lower,
        "upper" = upper,
        "title" = title,
        "capitalize" = capitalize
    );
    add!(add_filter, filters, STRIP, "trim" = trim);
    add!(add_filter, python, TEXT, "string" = string);
    add!(add_filter, filters, SPLIT, "split" = split, "lines" = lines);
    add!(
        add_filter,
        filters,
        SORT,
        "dictsort" = dictsort,
        "min" = min,
        "max" = max,
        "sort" = sort,
        "unique" = unique,
        "groupby" = groupby
    );
    add!(add_filter, filters, (Reads::Items, rows), "batch" = batch, "slice" = slice);
    add!(add_filter, filters, (Reads::Squared, parts), "sum" = sum);
    add!(add_filter, filters, (Reads::All, replaced), "replace" = replace);
    add!(add_filter, filters, (Reads::All, joined), "join" = join);
    add!(add_filter, filters, (Reads::All, indented), "indent" = indent);
    add!(add_filter, filters, (Reads::All, formatted), "format" = format);
    add!(add_filter, filters, (Reads::All, printed), "pprint" = pprint);
    // It stops by itself when the budget is used up.
    add!(add_filter, json, (Reads::All, |_| Ok(0)), "tojson" = tojson);

    add!(
        add_test,
        tests,
        TOP,
        "undefined" = is_undefined,
        "defined" = is_defined,
        "none" = is_none,
        "safe" = is_safe,
        "escaped" = is_safe,
        "boolean" = is_boolean,
        "odd" = is_odd,
        "even" = is_even,
        "divisibleby" = is_divisibleby,
        "number" = is_number,
        "integer" = is_integer,
        "int" = is_integer,
        "float" = is_float,
        "string" = is_string,
        "mapping" = is_mapping,
        "true" = is_true,
        "false" = is_false,
        "filter" = is_filter,
        "test" = is_test
    );
    add!(add_test, python, TOP, "iterable" = is_iterable, "sequence" = is_sequence);
    add!(
        add_test,
        tests,
        TEXT,
        "startingwith" = is_startingwith,
        "endingwith" = is_endingwith,
        "lower" = is_lower,
        "upper" = is_upper
    );
    const COMPARE: Cost = (Reads::Top, |args| operators::compare(args).map(|()| 0));
    add!(
        add_test,
        tests,
        COMPARE,
        "sameas" = is_sameas,
        "eq" = is_eq,
        "equalto" = is_eq,
        "==" = is_eq,
        "ne" = is_ne,
        "!=" = is_ne,
        "lt" = is_lt,
        "lessthan" = is_lt,
        "<" = is_lt,
        "le" = is_le,
        "<=" = is_le,
        "gt" = is_gt,
        "greaterthan" = is_gt,
        ">" = is_gt,
        "ge" = is_ge,
        ">=" = is_ge
    );
    add!(add_test, tests, (Reads::Top, |args| operators::contains(args).map(|()| 0)), "in" = is_in);

    add!(add_function, functions, TOP, "range" = range);
    add!(add_function, functions, LIST, "dict" = dict);
    add!(add_function, super, TEXT, "raise_exception" = raise_exception);
    add!(add_function, strftime, (Reads::All, |args| Ok(escaped(args)?.saturating_mul(ESCAPED))), "strftime_now" = now);
    let inner = Value::from_function(functions::namespace);
    environment.add_function("namespace", move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        namespace(state, &args.into_values(), &inner)
    });
    environment.set_unknown_method_callback(method);
}

/// `namespace(..)` of keyword arguments, or of a mapping.
fn namespace(state: &mut State<'_, '_>, args: &[Value], inner: &Value) -> Result<Value, Error> {
    let mut kept = Vec::with_capacity(args.len());
    for value in args {
        let Some(pairs) = value.as_object().and_then(|object| object.try_iter_pairs()) else {
            return inner.call(state, args);
        };
        let pairs = pairs.map(|(key, value)| Ok((key, held::keep_in_namespace(value)?)));
        kept.push(Value::from_pairs(pairs.collect::<Result<Vec<_>, Error>>()?));
    }
    if kept.len() > 1 {
        return Err(error("namespace takes keyword arguments, or one mapping"));
    }
    inner.call(state, &kept)
}

/// A method of a string, list or mapping.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let cost: Cost = match name {
        "get" => KEY,
        "startswith" | "endswith" if args.first().is_some_and(|arg| arg.as_object().is_some()) => AFFIXES,
        "startswith" | "endswith" => TOP,
        "strip" | "lstrip" | "rstrip" => STRIP,
        "keys" | "values" | "items" => LIST,
        "split" | "rsplit" | "splitlines" => SPLIT,
        "replace" => (Reads::All, replaced),
        "format" => (Reads::All, formatted),
        // The string is the separator.
        "join" => (Reads::All, |args| joined(&args.iter().rev().cloned().collect::<Vec<_>>())),
        _ => TEXT,
    };
    let all: Vec<Value> = std::iter::once(value).chain(args).cloned().collect();
    counted(cost, &all, || python::method(state, value, name, args))
}
