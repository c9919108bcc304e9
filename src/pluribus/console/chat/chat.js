import { Chat } from "pluribus-chat";

export default Chat;
