// The page of a chat. The process behind it tells in words what there is (`take`), and is asked for everything else
// (`ask`); nothing of a conversation is decided here.

import { markRaw, nextTick } from "vue";
import { Composer } from "./composer.js";
import { Forest } from "./forest.js";
import { Icon } from "./icons.js";
import { Members } from "./members.js";
import { Rooms } from "./rooms.js";
import { plain } from "./text.js";
import { Threads } from "./threads.js";

const THEMES = ["auto", "light", "dark"];
const SAID_MS = 1000;
const MORE_MAX = 40000; // messages that may come to a room before the latest of it are asked for anew, so that memory is bounded

function roomOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function remembered() {
  try {
    const theme = localStorage.getItem("pluribus-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

export const Chat = {
  components: { Composer, Icon, Members, Rooms, Threads },
  emits: ["ask"],
  data: () => ({
    lobby: { me: "", rooms: [], invitations: [], more: 0, others: [] },
    room: "",
    about: "",
    forest: markRaw(new Forest()),
    version: 0,
    earlier: 0,
    members: [],
    writing: [],
    answering: "",
    failure: "",
    notice: "",
    told: "",
    search: "",
    hits: [0, 0],
    side: "",
    theme: remembered(),
    offline: false,
    number: 0,
  }),
  computed: {
    answered() {
      void this.version;
      return this.answering ? (this.forest.nodes.get(this.answering) ?? null) : null;
    },
    query() {
      return this.search.trim().toLowerCase();
    },
    here() {
      return this.members.filter(([, here]) => here).length;
    },
    unread() {
      return this.lobby.rooms.reduce((sum, room) => sum + room.unread, 0);
    },
    themeLabel() {
      return { auto: "Colours: as the system has them", light: "Colours: light", dark: "Colours: dark" }[this.theme];
    },
  },
  watch: {
    unread: "title",
    room: "title",
  },
  mounted() {
    this.paint();
    this.title();
    this.lookAtLine = () => {
      const connected = !window.socket || window.socket.connected;
      if (connected && this.offline) this.ask({ type: "hello", room: this.room });
      this.offline = !connected;
    };
    this.line = setInterval(this.lookAtLine, 500);
    this.ask({ type: "hello", room: roomOfAddress() });
  },
  beforeUnmount() {
    clearInterval(this.line);
    clearTimeout(this.telling);
  },
  methods: {
    plain,
    ask(word) {
      this.$emit("ask", word);
    },

    // What the process tells. Words are numbered: if one is missing, everything is asked for again.
    take(number, words) {
      if (this.number && number !== this.number + 1 && words[0]?.type !== "begin") {
        this.ask({ type: "hello", room: this.room });
        return;
      }
      this.number = number;
      for (const word of words) this["on_" + word.type]?.(word);
    },
    on_begin() {
      this.failure = "";
      this.$refs.composer?.release();
    },
    on_lobby(word) {
      const heard = new Set(this.lobby.invitations.map((found) => found.name));
      const fresh = word.invitations.filter((found) => !heard.has(found.name));
      if (fresh.length) this.tell(`You are invited to ${fresh.map((found) => plain(found.name)).join(", ")}`);
      this.lobby = word;
    },
    on_room(word) {
      const again = word.name === this.room;
      this.room = word.name;
      this.about = word.about;
      this.earlier = word.earlier;
      this.members = word.members;
      this.writing = word.writing;
      const forest = new Forest();
      for (const row of word.rows) {
        const node = forest.add(row);
        const known = again ? this.forest.nodes.get(node.id) : null;
        if (known) [node.open, node.whole] = [known.open, known.whole];
      }
      if (!again) {
        this.answering = this.failure = this.search = "";
        this.side = "";
        history.replaceState(null, "", word.name ? "#" + encodeURIComponent(word.name) : " ");
      }
      this.forest = markRaw(forest);
      this.most = forest.nodes.size + MORE_MAX;
      this.version += 1;
    },
    on_rows(word) {
      if (word.name !== this.room) return;
      if (this.forest.nodes.size + word.rows.length > this.most) {
        this.most = Infinity; // until they are here
        this.ask({ type: "open", room: this.room });
        return;
      }
      let last = null;
      for (const row of word.rows) {
        const node = this.forest.add(row);
        if (node.by !== this.lobby.me) last = node;
      }
      this.version += 1;
      if (last) {
        const answers = last.up ? ` answers ${plain(last.up.by)}` : "";
        const more = word.rows.length > 1 ? `${word.rows.length} new messages; the last: ` : "";
        this.tell(`${more}${plain(last.by)}${answers}: ${plain(last.body ?? "").slice(0, 200)}`);
      }
    },
    on_people(word) {
      if (word.name !== this.room) return;
      this.members = word.members;
      this.writing = word.writing;
      this.about = word.about;
    },
    on_read(word) {
      if (word.name !== this.room) return;
      for (const id of word.ids) {
        const node = this.forest.nodes.get(id);
        if (node) node.unread = false;
      }
      this.version += 1;
    },
    on_said(word) {
      if (word.name !== this.room) return;
      this.failure = this.answering = "";
      this.$refs.composer?.said();
      nextTick(() => {
        const node = this.forest.nodes.get(word.id);
        if (node) this.$refs.threads.show(node);
      });
    },
    on_failed(word) {
      if (word.saying) this.failure = word.why;
      else this.note(word.why);
    },

    // What the person does
    answer(id) {
      this.answering = id;
      nextTick(() => this.$refs.composer.focus());
    },
    cancel() {
      this.answering = "";
      this.failure = "";
      this.$refs.threads?.focus();
    },
    say(text) {
      this.failure = "";
      this.ask({ type: "say", room: this.room, text, parent: this.answering || null });
    },
    open(name) {
      this.side = "";
      if (name !== this.room) this.ask({ type: "open", room: name });
    },
    leave() {
      this.$refs.leaving.close();
      this.ask({ type: "leave", room: this.room });
    },
    key(event) {
      const writes = ["INPUT", "TEXTAREA"].includes(event.target.tagName);
      if (event.key === "Escape" && this.side) this.side = "";
      else if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.$refs.search?.focus();
      }
    },
    searchKey(event) {
      if (event.key === "Enter") this.$refs.threads.turn(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.search = "";
        this.$refs.threads.focus();
      } else return;
      event.preventDefault();
    },
    turnTheme() {
      this.theme = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length];
      try {
        localStorage.setItem("pluribus-theme", this.theme);
      } catch {
        // a browser that keeps nothing
      }
      this.paint();
      this.tell(this.themeLabel);
    },
    paint() {
      document.documentElement.dataset.theme = this.theme;
    },
    title() {
      const unread = this.unread ? `(${this.unread}) ` : "";
      document.title = `${unread}${this.room ? plain(this.room) + " – " : ""}Pluribus`;
    },
    note(text) {
      this.notice = text;
      clearTimeout(this.noting);
      this.noting = setTimeout(() => (this.notice = ""), 8000);
    },
    // For screen readers, not more often than one can listen to.
    tell(text) {
      clearTimeout(this.telling);
      this.telling = setTimeout(() => (this.told = text), this.told ? SAID_MS : 0);
    },
  },
  template: `
<div class="chat" :class="{ empty: !room }" :data-side="side" @keydown="key">
  <Rooms :lobby="lobby" :room="room" @open="open" @close="side = ''"
    @join="(name) => ask({ type: 'join', room: name })" @refuse="(name) => ask({ type: 'refuse', room: name })"
    @create="(name, about) => ask({ type: 'create', room: name, about })" />
  <section class="talk" aria-label="Conversation">
    <header class="headline">
      <button type="button" class="plain phone menu" aria-label="Rooms" @click="side = 'rooms'"><Icon name="menu" /><span v-if="unread || lobby.invitations.length" class="spot"></span></button>
      <div class="title">
        <h1><bdi>{{ room ? plain(room) : "Pluribus" }}</bdi></h1>
        <p v-if="about"><bdi>{{ plain(about) }}</bdi></p>
      </div>
      <div v-if="room" class="search" role="search">
        <Icon name="search" /><input ref="search" v-model="search" type="search" placeholder="Search" aria-label="Search in this room" aria-keyshortcuts="/" @keydown="searchKey" />
        <span v-if="query" class="hits" role="status">{{ hits[1] ? hits[0] + " of " + hits[1] : "none" }}</span>
      </div>
      <button type="button" class="plain theme" :aria-label="themeLabel" :title="themeLabel" @click="turnTheme"><Icon :name="theme" /></button>
      <button v-if="room" type="button" class="plain people" :aria-label="here + ' of ' + members.length + ' members are here'" @click="side = side === 'members' ? '' : 'members'"><Icon name="people" /><span aria-hidden="true">{{ here }}/{{ members.length }}</span></button>
    </header>
    <p v-if="offline" class="offline" role="alert">The process behind this page does not answer. It is tried again.</p>
    <p v-if="notice" class="notice" role="alert">{{ notice }}<button type="button" class="plain" aria-label="Close" @click="notice = ''"><Icon name="close" /></button></p>
    <template v-if="room">
      <Threads ref="threads" :forest="forest" :version="version" :me="lobby.me" :room="room" :answering="answering" :query="query"
        :earlier="earlier" @answer="answer" @hits="(at, of) => (hits = [at, of])"
        @read="(ids) => ask({ type: 'read', room, ids })" @earlier="ask({ type: 'earlier', room })" />
      <Composer ref="composer" :room="room" :answered="answered" :failure="failure" :writing="writing" @say="say" @cancel="cancel"
        @write="(going) => ask({ type: 'write', room, going })" />
    </template>
    <div v-else class="welcome"><p>Join a room, or begin a new one.</p></div>
  </section>
  <Members v-if="room" :members="members" :me="lobby.me" @close="side = ''" @leave="$refs.leaving.showModal()" />
  <div v-if="side" class="shade" @click="side = ''"></div>
  <dialog ref="leaving" aria-labelledby="leaving-title">
    <h2 id="leaving-title">Leave <bdi>{{ plain(room) }}</bdi>?</h2>
    <p>The others are told. To go away for a while, close this page: you stay a member.</p>
    <div class="buttons"><button type="button" class="weak" @click="$refs.leaving.close()">Stay</button><button type="button" class="strong danger" @click="leave">Leave</button></div>
  </dialog>
  <p class="sr" role="status" aria-live="polite">{{ told }}</p>
</div>`,
};
