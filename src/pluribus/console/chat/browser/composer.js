// Where one writes: a new message, or an answer to the one that was chosen.

import { nextTick } from "vue";
import { Icon } from "./icons.js";
import { plain } from "./text.js";

const CHARS_MAX = 32768;
const STILL_MS = 2000;

export const Composer = {
  components: { Icon },
  props: { room: String, answered: Object, failure: String, writing: Array },
  emits: ["say", "write", "cancel"],
  data: () => ({ text: "", drafts: {}, pending: false }),
  watch: {
    room(now, before) {
      this.drafts[before] = this.text;
      this.text = this.drafts[now] ?? "";
      this.pending = false;
      nextTick(this.grow);
    },
    failure(why) {
      if (why) this.pending = false;
    },
  },
  computed: {
    about() {
      return this.answered ? plain(this.answered.body ?? "").slice(0, 160) : "";
    },
    by() {
      return this.answered ? plain(this.answered.by) : "";
    },
    label() {
      return this.answered ? `Answer to ${this.by}: ${this.about}` : `New message in ${plain(this.room)}`;
    },
    typists() {
      const names = this.writing.map(plain);
      if (!names.length) return "";
      if (names.length === 1) return `${names[0]} is writing`;
      if (names.length < 4) return `${names.slice(0, -1).join(", ")} and ${names.at(-1)} are writing`;
      return `${names.length} people are writing`;
    },
  },
  methods: {
    focus() {
      this.$refs.text.focus();
    },
    grow() {
      const area = this.$refs.text;
      area.style.height = "auto";
      area.style.height = `${Math.min(area.scrollHeight, 200)}px`;
    },
    typed() {
      this.grow();
      clearTimeout(this.still);
      this.$emit("write", Boolean(this.text.trim()));
      if (this.text.trim()) this.still = setTimeout(() => this.$emit("write", false), STILL_MS * 2);
    },
    say() {
      if (!this.text.trim() || this.pending) return;
      clearTimeout(this.still);
      this.pending = true;
      this.$emit("say", this.text.trimEnd());
    },
    // The line was broken while something was sent: it may be sent again.
    release() {
      this.pending = false;
    },
    said() {
      this.text = "";
      this.pending = false;
      nextTick(this.grow);
    },
    key(event) {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.say();
      } else if (event.key === "Escape") {
        this.$emit("cancel");
      }
    },
  },
  template: `
<form class="composer" @submit.prevent="say">
  <p class="typing" role="status">{{ typists }}<span v-if="typists" class="dots" aria-hidden="true"><i></i><i></i><i></i></span></p>
  <p v-if="failure" class="failure" role="alert">{{ failure }}</p>
  <div v-if="answered" class="answered">
    <Icon name="answer" /><span class="to"><b><bdi>{{ by }}</bdi></b> <bdi>{{ about }}</bdi></span>
    <button type="button" class="plain" aria-label="Write a new message instead" title="Write a new message instead (Esc)" @click="$emit('cancel')"><Icon name="close" /></button>
  </div>
  <div class="line">
    <textarea ref="text" v-model="text" rows="1" :aria-label="label" maxlength="${CHARS_MAX}"
      :placeholder="answered ? 'Your answer' : 'Begin a new thread'" dir="auto" @input="typed" @keydown="key"></textarea>
    <button type="submit" class="send" aria-label="Send" title="Send (Enter)" :disabled="!text.trim() || pending"><Icon name="send" /></button>
  </div>
</form>`,
};
