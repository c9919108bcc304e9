// Small drawings for buttons; each button has a label of its own, so they are hidden from screen readers.

const PATHS = {
  add: "M12 5v14M5 12h14",
  answer: "M9 7 4 12l5 5M4 12h10a6 6 0 0 1 6 6v1",
  back: "M15 6l-6 6 6 6",
  close: "M6 6l12 12M18 6 6 18",
  dark: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  down: "M12 5v14M6 13l6 6 6-6",
  fold: "M8 10l4 4 4-4",
  leave: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5a6.5 6.5 0 0 1 3.5 5.5",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  send: "M4 12 20 4l-5 16-4-7z",
  up: "M12 19V5M6 11l6-6 6 6",
};

export const Icon = {
  props: { name: String },
  computed: {
    path() {
      return PATHS[this.name];
    },
  },
  template: `<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path :d="path" /></svg>`,
};
