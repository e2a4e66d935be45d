// The page's Markdown, colours and storage, in Node. run.sh runs it where Node is installed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import vm from "node:vm";

const folder = new URL("../../command/src/serve/page/", import.meta.url);
const escaped = text => text.replace(/[&<>"]/g, letter => `&#${letter.charCodeAt(0)};`);

/* As much of a document as the page's files use: texts, and elements that can be written as HTML. */
class Text {
  constructor(data) { this.data = data; }
  appendData(more) { this.data += more; }
  deleteData(at, count) { this.data = this.data.slice(0, at) + this.data.slice(at + count); }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1); }
  toString() { return this.data; }
  get textContent() { return this.data; }
  get html() { return escaped(this.data); }
}

class Node {
  constructor(name) { Object.assign(this, { name, children: [], style: {}, className: "" }); }
  append(...parts) {
    for (const part of parts) {
      const child = part instanceof Node ? part : new Text(String(part));
      child.parent = this;
      this.children.push(child);
    }
  }
  before(...parts) {
    parts.forEach(part => { part.parent = this.parent; });
    this.parent.children.splice(this.parent.children.indexOf(this), 0, ...parts);
  }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1); }
  get childNodes() { return this.children; }
  get textContent() { return this.children.map(part => part.textContent).join(""); }
  get inside() { return this.children.map(part => part.html).join(""); }
  get html() {
    const shown = ["href", "start", "type", "checked", "className"].filter(name => name in this && this[name] !== "");
    const align = this.style.textAlign ? [` align=${this.style.textAlign}`] : [];
    const properties = shown.map(name => ` ${name}=${escaped(String(this[name]))}`).concat(align).join("");
    return `<${this.name}${properties}>${this.inside}</${this.name}>`;
  }
}

const page = vm.createContext({ document: { createElement: name => new Node(name) }, performance });
for (const file of ["markdown-it.min.js", "colours.js", "markdown.js", "store.js"]) {
  vm.runInContext(readFileSync(new URL(file, folder), "utf8"), page, { filename: file });
}
const from = names => vm.runInContext(`({ ${names} })`, page);
const { markdown, Drawing, coloured, Store } = from("markdown, Drawing, coloured, Store");

function html(source) {
  const box = new Node("div");
  box.append(...markdown(source));
  return box.inside;
}

const checks = {
  lists_are_nested() {
    assert.equal(html("1. a\n   - b\n     - c\n2. d"),
      "<ol><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ol>");
    assert.equal(html("4. a\n5. b"), "<ol start=4><li>a</li><li>b</li></ol>");
    assert.equal(html("- a\n\n  b\n- c"), "<ul><li><p>a</p><p>b</p></li><li><p>c</p></li></ul>");
  },
  stars_between_letters_multiply() {
    for (const text of ["2*3*4", "a*b*c = d", "2**3**4", "snake_case_name"]) assert.equal(html(text), `<p>${text}</p>`);
    assert.equal(html("*a* **b** __c__ _d_ ~~e~~ ***f*** **N**orth **重**要"), "<p><em>a</em> <strong>b</strong> " +
      "<strong>c</strong> <em>d</em> <s>e</s> <em><strong>f</strong></em> <strong>N</strong>orth " +
      "<strong>重</strong>要</p>");
  },
  tasks_are_boxes() {
    assert.equal(html("- [x] a\n- [ ] *b*\n- [c] d"), "<ul><li><input type=checkbox checked=true></input> a</li>" +
      "<li><input type=checkbox checked=false></input> <em>b</em></li><li>[c] d</li></ul>");
    assert.equal(html("[x] a"), "<p>[x] a</p>");
  },
  markup_stays_text() {
    for (const text of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- a -->", "<b>c</b>"]) {
      assert.equal(html(text), `<p>${escaped(text)}</p>`);
      assert.equal(html(`| ${text} |\n|---|`).includes(escaped(text)), true);
    }
    assert.match(html("| a<br>b |\n|---|"), /<th>a<br><\/br>b<\/th>/);
    assert.equal(html("&amp;lt; &copy;"), "<p>&#38;lt; ©</p>");
  },
  links_are_of_three_kinds() {
    const linked = text => [...html(text).matchAll(/href=([^ >]+)/g)].map(found => found[1]);
    const refused = ["javascript:alert(1)", "JaVaScript:alert(1)", "&#106;avascript:alert(1)", "java\tscript:x",
      "data:text/html,x", "vbscript:x", "file:///etc/passwd", "//example.com", "/path", "ftp://example.com"];
    for (const text of refused) {
      assert.deepEqual(linked(`[a](${text}) <${text}> ${text} ![a](${text})\n\n[a]: ${text}`), [], text);
    }
    assert.deepEqual(linked("[a](https://a.example?b=1&amp;c=2)"), ["https://a.example?b=1&#38;c=2"]);
    const bare = linked("http://a.example/b_(c), <mailto:a@b.example> and main.rs");
    assert.deepEqual(bare, ["http://a.example/b_(c)", "mailto:a@b.example"]);
    assert.match(html("![a picture](https://a.example/p.png)"), /^<p><a href=[^ >]+>a picture<\/a><\/p>$/);
  },
  tables_rules_and_formulas() {
    assert.match(html("| a | b |\n|:-:|--:|\n| 1 | 2 |"), /<td align=center>1<\/td><td align=right>2<\/td>/);
    assert.equal(html("a\n\n---\n\nb"), "<p>a</p><hr></hr><p>b</p>");
    assert.equal(html("\\( a_1 * b_1 * c \\)"), "<p><code className=formula>\\( a_1 * b_1 * c \\)</code></p>");
    assert.equal(html("one\ntwo"), "<p>one<br></br>two</p>");
  },
  a_stream_is_drawn_as_the_whole() {
    const source = ["# Title", "A `b` [l][ref]\n#tag", "- one\n- two\n  1. three", "  four",
      "```rust\nfn a() {}\n\n\nfn b() {}\n```\ntext\n  ```\nx\n\ny\n```", "| a | b |\n|---|---|\n| 1 | 2 |",
      "> quoted\n> > twice", "Heading\n---", "1. one", "2. two", "[ref]: https://a.example", "The end"].join("\n\n");
    const box = new Node("div");
    const drawing = new Drawing(box);
    const said = [];
    for (let at = 0; at < source.length; at++) said.push(...drawing.draw(source.slice(0, at), false));
    const before = box.children.length;
    assert.equal(source.slice(drawing.offset).split("\n")[0], "1. one", "only the last two blocks are parsed again");
    said.push(...drawing.draw(source, true));
    assert.equal(box.inside, html(source));
    assert.equal(box.children.length, before);
    assert.equal(said.length, before, "each block is said once");
  },
  settled_elements_stay() {
    const box = new Node("div");
    const drawing = new Drawing(box);
    drawing.draw("a\n\nb\n\nc\n\nd", false);
    const first = box.children.slice();
    drawing.draw("a\n\nb\n\nc\n\nd e", true);
    assert.deepEqual(box.children.map((node, at) => node === first[at]), [true, true, true, false]);
  },
  growing_code_keeps_its_elements() {
    for (const language of ["rust", ""]) {
      const source = "```" + language + "\nlet a = \"one\"; // two\nlet b = 3;\n```";
      const box = new Node("div");
      const drawing = new Drawing(box);
      const start = source.indexOf("one");
      drawing.draw(source.slice(0, start), false);
      const [block] = box.children;
      const code = block.children[1].children[0];
      const [first] = code.children;
      for (let at = start; at <= source.length; at++) drawing.draw(source.slice(0, at), at === source.length);
      assert.equal(box.children[0], block, "the block, and with it the focus of its button, stays");
      assert.equal(code.children[0], first, "what is selected in its beginning stays");
      assert.equal(box.inside, html(source));
    }
  },
  long_code_stays_plain() {
    for (const language of ["diff", "rust"]) {
      assert.ok(coloured("+ let a\n".repeat(20), language).length >= 20, language);
      assert.equal(coloured("+ let a\n".repeat(20_000), language).length, 1, language);
    }
  },
  hostile_texts_take_no_time() {
    const nested = Array.from({ length: 500 }, (_, depth) => "  ".repeat(depth) + "- a").join("\n");
    const texts = ["[".repeat(40_000), "[a](".repeat(20_000), "> ".repeat(5_000) + "end", "*a".repeat(20_000),
      "`a`".repeat(100_000), "a" + " ".repeat(50_000) + "b", "\\(".repeat(30_000), "$$".repeat(30_001), nested,
      "*a ".repeat(5_000) + "b*".repeat(5_000)];
    for (const text of texts) {
      const start = performance.now();
      const shown = html(text);
      assert.ok(performance.now() - start < 3000, text.slice(0, 8));
      let depth = 0;
      for (const [tag] of shown.matchAll(/<\/?\w/g)) {
        depth += tag[1] === "/" ? -1 : 1;
        assert.ok(depth < 130, `${text.slice(0, 8)}: nested deeper than browsers draw`);
      }
    }
  },
  code_has_colours_and_its_text() {
    const kinds = (code, language) => [...coloured(code, language)].filter(part => part instanceof Node)
      .map(part => `${part.className}:${part.inside}`);
    assert.deepEqual(kinds("let a: &'a str = f(0x1f); // b", "rust"),
      ["keyword:let", "keyword:str", "call:f", "number:0x1f", "comment:// b"]);
    assert.deepEqual(kinds("x = 'a#b' # c", "python"), ["string:'a#b'", "comment:# c"]);
    assert.deepEqual(kinds("select a from b", "sql"), ["keyword:select", "keyword:from"]);
    assert.deepEqual(kinds("let a", "unknown"), []);
    const code = readFileSync(new URL("page.js", folder), "utf8");
    for (const language of ["js", "rust", "python", "sql", "html", "diff", ""]) {
      const text = coloured(code, language).map(part => part.textContent ?? part).join("");
      assert.equal(text, code, language);
    }
  },
  versions_of_messages_are_kept() {
    const { newTalk, addMessage, pathOf, siblingsOf, showMessage, titleOf, requestOf, merge } =
      from("newTalk, addMessage, pathOf, siblingsOf, showMessage, titleOf, requestOf, merge");
    const talk = newTalk({ system: "Be brief." });
    const asked = addMessage(talk, "user", "One?");
    const first = addMessage(talk, "assistant", "1");
    first.reasoning = "Hm.";
    addMessage(talk, "user", "Two?");
    const second = addMessage(talk, "assistant", "1, again", asked.id);
    const told = () => pathOf(talk).map(message => message.content).join("|");
    assert.equal(told(), "One?|1, again");
    assert.equal(siblingsOf(talk, second).length, 2);
    showMessage(talk, first);
    assert.equal(told(), "One?|1|Two?");
    const sent = JSON.parse(JSON.stringify(requestOf(talk, talk.leaf)));
    assert.deepEqual(sent, [{ role: "system", content: "Be brief." }, { role: "user", content: "One?" },
      { role: "assistant", content: "1", reasoning_content: "Hm." }, { role: "user", content: "Two?" }]);
    assert.equal(titleOf(talk), "One?");
    const other = structuredClone({ ...talk });
    addMessage(other, "user", "From another window");
    merge(talk, other);
    merge(talk, other);
    assert.equal(talk.messages.map(message => message.content).join("|"), "One?|1|Two?|1, again|From another window");
  },
  conversations_are_exported_and_read_again() {
    const { newTalk, addMessage } = from("newTalk, addMessage");
    const { asMarkdown, asJson, fromJson } = from("asMarkdown, asJson, fromJson");
    const talk = newTalk({ temperature: 0.5 });
    addMessage(talk, "user", "One?");
    addMessage(talk, "assistant", "# 1");
    assert.equal(asMarkdown(talk), "# One?\n\n## User\n\nOne?\n\n## Assistant\n\n# 1\n");
    assert.equal(JSON.stringify(fromJson(asJson([talk]))[0].messages), JSON.stringify(talk.messages));
    const strange = { ...talk, changed: "never", settings: { temperature: "hot", think: true, other: 1 },
      times: { title: "x" }, messages: [{ ...talk.messages[0], timings: { predicted_n: 1 }, odd: 2, failed: null }] };
    const [read] = fromJson(asJson([strange]));
    assert.equal(JSON.stringify([read.changed, read.settings, read.times, read.messages]),
      JSON.stringify([0, { think: true }, {}, [talk.messages[0]]]), "fields of other types are left out");
    assert.ok(fromJson(asJson([{ ...talk, changed: 1e300 }]))[0].changed <= Date.now());
    const many = Array.from({ length: 100_000 }, (_, at) =>
      ({ id: `m${at}`, parent: at ? `m${at - 1}` : null, role: "user", content: "" }));
    assert.equal(fromJson(asJson([{ ...talk, messages: many }]))[0].messages.length, many.length);
    const of = (...messages) => asJson([{ ...talk, messages }]);
    const [message] = talk.messages;
    const wrong = [["{", /not JSON/], ["[]", /format/], [asJson([{ id: "a" }]), /conversation 1 has no messages/],
      [of({ id: "a", role: "tool", content: "x", parent: null }), /its role/], [of(null), /its text/],
      [of({ id: "a", role: "user", content: "x", parent: "a" }), /the one before it/],
      [of(message, message), /is there twice/]];
    for (const [text, reason] of wrong) assert.throws(() => fromJson(text), reason);
  },
  windows_take_over_what_is_newer() {
    const { newTalk, addMessage, changeMessage, setField, merge, pathOf, fromJson, asJson } =
      from("newTalk, addMessage, changeMessage, setField, merge, pathOf, fromJson, asJson");
    const copy = talk => JSON.parse(JSON.stringify(talk));
    const one = newTalk({});
    const asked = addMessage(one, "user", "One?");
    const reply = addMessage(one, "assistant", "");
    changeMessage(reply, { content: "par", state: "running" });
    const other = copy(one);

    // The other window has an older part of a reply, whichever way they are merged.
    changeMessage(reply, { content: "partial and the rest", state: "done" });
    merge(other, copy(one));
    merge(one, copy(other));
    for (const talk of [one, other]) {
      assert.deepEqual(Array.from(talk.messages, ({ content, state }) => `${content} ${state}`),
        ["One? undefined", "partial and the rest done"]);
    }
    assert.equal(one.messages[1], reply, "a reply that arrives keeps its object");

    // A file that was exported while the reply arrived takes nothing back.
    const older = { ...copy(reply), version: 1, content: "" };
    const [file] = fromJson(asJson([{ ...copy(one), messages: [copy(asked), older] }]));
    assert.equal(merge(copy(one), file).messages[1].content, "partial and the rest");

    // A reply that is requested again has less text, and is newer.
    changeMessage(reply, { content: "", state: "running" });
    delete reply.odd;
    assert.equal(merge(copy(other), copy(one)).messages[1].content, "");

    // Titles and settings: the last ones that were set, wherever.
    setField(one, "title", "Numbers");
    assert.equal(merge(copy(other), copy(one)).title, "Numbers");
    assert.equal(merge(copy(one), copy(other)).title, "Numbers");

    // Each window stays at its version of the conversation, and follows what is said below it.
    const mine = copy(one);
    const again = addMessage(one, "assistant", "Another version", asked.id);
    merge(mine, copy(one));
    assert.equal(pathOf(mine).at(-1).content, "");
    addMessage(one, "user", "And two?", reply.id);
    merge(mine, copy(one));
    assert.equal(pathOf(mine).at(-1).content, "And two?");
    one.leaf = again.id;
    assert.equal(pathOf(merge(one, copy(mine))).at(-1).content, "Another version");

    // A message keeps its place, so that two files cannot make a ring of messages.
    const ring = copy(mine);
    Object.assign(ring.messages[0], { parent: reply.id, version: 99 });
    assert.equal(merge(mine, ring).messages[0].parent, null);
  },
  async without_a_database_the_page_keeps_conversations_itself() {
    const { newTalk } = from("newTalk");
    const store = await Store.open(undefined);
    const [one, other] = [newTalk({}), newTalk({})];
    other.changed = one.changed + 1;
    await store.put(one);
    await store.put(other);
    assert.equal(store.kept, false);
    assert.deepEqual([...store.list().map(head => head.id)], [other.id, one.id]);
    assert.deepEqual(Array.from(await store.all(), talk => talk === one), [false, true]);
    assert.equal(await store.load(one.id), one);
    assert.equal(await store.load("another"), undefined);
    await store.remove(other.id);
    assert.deepEqual([...store.list().map(head => head.id)], [one.id]);
  },
};

const wanted = process.argv[2] ?? "";
let failed = 0;
for (const [name, check] of Object.entries(checks).filter(([name]) => name.includes(wanted))) {
  try {
    await check();
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error.message}`);
  }
}
process.exit(Math.min(failed, 70));
