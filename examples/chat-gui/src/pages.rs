//! Which of the list of conversations and the settings are shown.
//!
//! A wide window shows them next to the conversation or the page of models, which is at its center. A narrow window has
//! space for only one of the three.

/// What is shown besides the center, or in its place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pages {
    /// Whether the window is narrow.
    pub narrow: bool,
    /// Whether the user has hidden the list in a wide window.
    list_hidden: bool,
    /// Whether the list is shown in a narrow window.
    list_opened: bool,
    settings: bool,
}

impl Pages {
    /// Whether the list is shown.
    pub fn list(self) -> bool {
        if self.narrow { self.list_opened && !self.settings } else { !self.list_hidden }
    }

    /// Whether the settings are shown.
    pub fn settings(self) -> bool {
        self.settings
    }

    /// Shows the list.
    pub fn show_list(&mut self) {
        if self.narrow {
            (self.list_opened, self.settings) = (true, false);
        } else {
            self.list_hidden = false;
        }
    }

    /// Shows the list, or hides it.
    pub fn turn_list(&mut self) {
        match (self.list(), self.narrow) {
            (false, _) => self.show_list(),
            (true, true) => self.list_opened = false,
            (true, false) => self.list_hidden = true,
        }
    }

    /// Shows the settings, or hides them.
    pub fn turn_settings(&mut self) {
        self.settings = !self.settings;
        self.list_opened &= !self.narrow;
    }

    /// Shows what is at the center. True if it was hidden, as it can be in a narrow window.
    pub fn show_center(&mut self) -> bool {
        let hidden = self.narrow && (self.list_opened || self.settings);
        if hidden {
            (self.list_opened, self.settings) = (false, false);
        }
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;

    #[test]
    fn a_wide_window_has_space_for_all() {
        let mut pages = Pages::default();
        assert!(pages.list() && !pages.settings());
        pages.turn_settings();
        assert!(pages.list() && pages.settings() && !pages.show_center());
        pages.turn_list();
        assert!(!pages.list() && pages.settings());
        pages.show_list();
        assert!(pages.list() && pages.settings());
    }

    #[test]
    fn a_narrow_window_shows_what_was_asked_for_last() {
        let mut pages = Pages { narrow: true, ..Pages::default() };
        assert!(!pages.list() && !pages.show_center());
        pages.turn_list();
        assert!(pages.list());
        pages.turn_settings();
        assert!(!pages.list() && pages.settings());
        pages.turn_list();
        assert!(pages.list() && !pages.settings(), "the list takes the place of the settings");
        pages.turn_settings();
        pages.turn_settings();
        assert!(!pages.list() && !pages.settings(), "the conversation returns, and not the list");
        pages.turn_settings();
        assert!(pages.show_center() && !pages.settings());
    }

    #[test]
    fn a_window_that_becomes_wide_shows_the_list_as_before() {
        for hidden in [false, true] {
            let mut pages = Pages::default();
            if hidden {
                pages.turn_list();
            }
            pages.narrow = true;
            pages.turn_list();
            pages.narrow = false;
            assert_eq!(pages.list(), !hidden);
        }
    }
}
