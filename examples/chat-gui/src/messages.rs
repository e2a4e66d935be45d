//! The messages of the conversation, and the reply that is being generated.
//!
//! All messages are laid out once, and then only those in sight, so that a long conversation is drawn as fast as a
//! short one.

use crate::conversation::Conversation;
use crate::message_tools::{self, Action, Offered};
use crate::pending::Pending;
use crate::status::Places;
use crate::{look, markdown};
use eframe::egui::{
    Align, CollapsingHeader, Color32, Frame, Layout, Rect, RichText, Role, ScrollArea, Shape, TextStyle, Ui, UiBuilder,
    vec2,
};
use egui_commonmark::CommonMarkCache;
use wglm::{Message, ToolCall};

/// What can be done with the message at a position.
type Can<'a> = &'a dyn Fn(usize) -> Offered<'static>;

/// State that is kept from frame to frame.
#[derive(Default)]
pub struct View {
    cache: CommonMarkCache,
    /// The conversation and the width for which the heights were measured.
    of: (String, f32),
    heights: Vec<f32>,
    /// The position of a message to scroll to.
    pub target: Option<usize>,
}

impl View {
    /// Notes that the messages from a position on have changed and must be laid out again.
    pub fn changed(&mut self, from: usize) {
        self.heights.truncate(from);
    }

    /// Shows a conversation, and the reply to it if one is being generated.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        conversation: &Conversation,
        pending: Option<&Pending>,
        can: Can<'_>,
        places: &mut Places,
    ) -> Option<Action> {
        let mut action = None;
        ScrollArea::vertical().id_salt(&conversation.id).auto_shrink(false).stick_to_bottom(true).show(ui, |ui| {
            action = look::column(ui, |ui| self.column(ui, conversation, pending, can, places));
        });
        if places.are_wanted() {
            note_code(ui, places);
        }
        action
    }

    fn column(
        &mut self,
        ui: &mut Ui,
        conversation: &Conversation,
        pending: Option<&Pending>,
        can: Can<'_>,
        places: &mut Places,
    ) -> Option<Action> {
        let mut action = None;
        let width = ui.available_width();
        if self.of != (conversation.id.clone(), width) {
            self.of = (conversation.id.clone(), width);
            self.heights.clear();
        }
        ui.spacing_mut().item_spacing.y = 10.0;
        for (index, message) in conversation.tree.messages().enumerate() {
            let asked = ui.push_id(index, |ui| self.message(ui, index, message, can, places));
            action = asked.inner.or(action);
            if self.target.take_if(|target| *target == index).is_some() {
                asked.response.scroll_to_me(Some(Align::TOP));
            }
        }
        if let Some(pending) = pending {
            self.pending(ui, pending);
        }
        if conversation.is_empty() && pending.is_none() {
            ui.add_space(40.0);
            ui.vertical_centered(|ui| ui.weak("Write a message to start."));
        }
        action
    }

    /// Shows a message, or leaves its space empty if it is out of sight.
    fn message(
        &mut self,
        ui: &mut Ui,
        index: usize,
        message: &Message,
        can: Can<'_>,
        places: &mut Places,
    ) -> Option<Action> {
        if let Some(height) = self.heights.get(index) {
            let place = vec2(ui.available_width(), *height);
            if !ui.is_rect_visible(Rect::from_min_size(ui.cursor().min, place)) {
                ui.allocate_space(place);
                return None;
            }
        }
        let who = match message.role.as_str() {
            "user" => "You",
            "tool" => "Function",
            _ => "Model",
        };
        let group = UiBuilder::new().accessibility_role(Role::Article).accessibility_label(who);
        let shown = ui.scope_builder(group, |ui| self.said(ui, message, can(index), places));
        let height = shown.response.rect.height();
        match self.heights.get_mut(index) {
            Some(place) => *place = height,
            None => self.heights.push(height),
        }
        shown.inner
    }

    fn said(&mut self, ui: &mut Ui, message: &Message, offered: Offered<'_>, places: &mut Places) -> Option<Action> {
        let text = message.text();
        let layout = match message.role.as_str() {
            "user" => {
                user(ui, &mut self.cache, &text);
                Layout::right_to_left(Align::Min)
            }
            "tool" => {
                tool(ui, "Function result", &text);
                Layout::left_to_right(Align::Min)
            }
            _ => {
                if let Some(thinking) = &message.reasoning_content {
                    self.thinking(ui, thinking, "Thinking");
                }
                markdown::show(ui, &mut self.cache, &text);
                message.tool_calls.iter().for_each(|call| called(ui, call));
                Layout::left_to_right(Align::Min)
            }
        };
        ui.spacing_mut().item_spacing = vec2(2.0, 2.0);
        let row = vec2(ui.available_width(), 18.0);
        ui.allocate_ui_with_layout(row, layout, |ui| message_tools::show(ui, message, offered, places)).inner
    }

    fn pending(&mut self, ui: &mut Ui, pending: &Pending) {
        ui.push_id("pending", |ui| {
            if !pending.thinking.is_empty() {
                let title = if pending.text.is_empty() { "Thinking …" } else { "Thinking" };
                self.thinking(ui, &pending.thinking, title);
            }
            markdown::show_unfinished(ui, &mut self.cache, &pending.text);
            pending.calls.iter().for_each(|call| called(ui, call));
            ui.horizontal(|ui| {
                ui.spinner();
                if let Some((done, total)) = pending.prompt {
                    ui.weak(format!("Reading the prompt: {done} of {total} tokens"));
                }
            });
        });
    }

    /// The model's thinking, collapsed.
    fn thinking(&mut self, ui: &mut Ui, text: &str, title: &str) {
        let title = RichText::new(title).weak().italics();
        CollapsingHeader::new(title).id_salt("thinking").show(ui, |ui| markdown::show(ui, &mut self.cache, text));
    }
}

/// Records the place of the last button that copies code, by the icon that the viewer of Markdown has drawn.
fn note_code(ui: &Ui, places: &mut Places) {
    let icon = |shape: &Shape| match shape {
        Shape::Text(text) if text.galley.text() == "🗐" => Some(text.visual_bounding_rect()),
        _ => None,
    };
    let last =
        ui.ctx().graphics(|drawn| drawn.get(ui.layer_id())?.all_entries().filter_map(|it| icon(&it.shape)).last());
    last.into_iter().for_each(|place| places.note("copy code", place));
}

/// A user message, on the right, in a box that is as wide as the text.
fn user(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str) {
    ui.horizontal(|ui| {
        let space = ui.available_width() - 2.0 * f32::from(look::MARGIN.left);
        let width = width(ui, text).min(space);
        ui.spacing_mut().item_spacing.x = 0.0;
        ui.add_space((space - width).max(0.0));
        let ground = Frame::new().fill(look::user(ui)).corner_radius(8.0).inner_margin(look::MARGIN);
        ground.show(ui, |ui| {
            ui.vertical(|ui| {
                ui.set_width(width);
                markdown::show_typed(ui, cache, text);
            });
        });
    });
}

/// About the width that a text would have if none of its lines wrapped.
fn width(ui: &Ui, text: &str) -> f32 {
    // Headings and tables are wider than what is measured here, and measuring a long text takes time.
    const LONG: usize = 2000;
    if text.len() > LONG || text.lines().any(|line| line.starts_with(['#', '|'])) {
        return f32::INFINITY;
    }
    let style = if text.contains('`') { TextStyle::Monospace } else { TextStyle::Body };
    let font = style.resolve(ui.style());
    let galley = ui.fonts_mut(|fonts| fonts.layout_no_wrap(text.to_owned(), font, Color32::PLACEHOLDER));
    let lists = if text.lines().any(|line| line.trim_start().starts_with(['-', '*', '>', '1'])) { 40.0 } else { 2.0 };
    galley.size().x + lists
}

fn called(ui: &mut Ui, call: &ToolCall) {
    let arguments = serde_json::to_string_pretty(&call.function.arguments).unwrap_or_default();
    tool(ui, &format!("Function call: {}", call.function.name), &arguments);
}

fn tool(ui: &mut Ui, title: &str, text: &str) {
    Frame::group(ui.style()).show(ui, |ui| {
        ui.label(RichText::new(title).strong());
        ui.label(RichText::new(text).monospace());
    });
}
